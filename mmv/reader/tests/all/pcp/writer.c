/* Writes a file of each version with the C library, for tests: writer VERSION FLAGS NAME. */
#include <pcp/pmapi.h>
#include <pcp/mmv_stats.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONG "a.name.that.is.much.longer.than.the.sixty.three.bytes.that.version.one.has.room.for"

static const struct { const char *name; int type, sem; pmUnits units; } kinds[] = {
    { "i32", MMV_TYPE_I32, MMV_SEM_INSTANT, MMV_UNITS(1,0,0,PM_SPACE_KBYTE,0,0) },
    { "u32", MMV_TYPE_U32, MMV_SEM_DISCRETE, MMV_UNITS(0,1,0,0,PM_TIME_MSEC,0) },
    { "i64", MMV_TYPE_I64, MMV_SEM_INSTANT, MMV_UNITS(1,-1,0,PM_SPACE_MBYTE,PM_TIME_SEC,0) },
    { "u64", MMV_TYPE_U64, MMV_SEM_COUNTER, MMV_UNITS(0,0,1,0,0,PM_COUNT_ONE) },
    { "float", MMV_TYPE_FLOAT, MMV_SEM_INSTANT, MMV_UNITS(0,-1,1,0,PM_TIME_SEC,3) },
    { "double", MMV_TYPE_DOUBLE, 0, MMV_UNITS(0,0,0,0,0,0) },
    { "string", MMV_TYPE_STRING, MMV_SEM_INSTANT, MMV_UNITS(0,0,0,0,0,0) },
    { "elapsed", MMV_TYPE_ELAPSED, MMV_SEM_COUNTER, MMV_UNITS(1,0,0,0,0,0) },
    { "unsupported", MMV_TYPE_NOSUPPORT, MMV_SEM_COUNTER, MMV_UNITS(0,0,0,0,0,0) },
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static void fill(void *map, const char *name, const char *instance, int n)
{
    for (int i = 0; i < KINDS; i++) {
        char metric[128];
        snprintf(metric, sizeof metric, "%s.%s", name, kinds[i].name);
        if (kinds[i].type == MMV_TYPE_STRING)
            mmv_stats_set_string(map, metric, instance, instance ? instance : "some words");
        else
            mmv_stats_set(map, metric, instance, kinds[i].type == MMV_TYPE_U32 ? 3e9 + n : -7.25 * n);
    }
}

static void *version1(const char *file, int flags)
{
    static mmv_metric_t metrics[2 * KINDS];
    static mmv_instances_t instances[] = { { 3, "three" }, { 1, "one with words" }, { 2, "two" } };
    mmv_indom_t indoms[] = { { 7, 3, instances, "numbers", "some numbers\nof things" }, { 9, 0, NULL, NULL, NULL } };
    for (int i = 0; i < 2 * KINDS; i++) {
        mmv_metric_t *m = &metrics[i];
        int k = i % KINDS;
        snprintf(m->name, MMV_NAMEMAX, "%s.%s", i < KINDS ? "one" : "each", kinds[k].name);
        m->item = 10 * i + 1;
        m->type = kinds[k].type;
        m->semantics = kinds[k].sem;
        m->dimension = kinds[k].units;
        m->indom = i < KINDS ? PM_INDOM_NULL : 7;
        m->shorttext = i % 3 ? "one line" : NULL;
        m->helptext = i % 2 ? "more\nthan one line" : NULL;
    }
    return mmv_stats_init(file, 77, flags, metrics, 2 * KINDS, indoms, 2);
}

static mmv_registry_t *version2(const char *file, int flags)
{
    mmv_registry_t *r = mmv_stats_registry(file, 78, flags);
    mmv_stats_add_indom(r, 8, "letters", NULL);
    mmv_stats_add_instance(r, 8, 0, "alpha");
    mmv_stats_add_instance(r, 8, 5, LONG);
    for (int i = 0; i < 2 * KINDS; i++) {
        static char names[2 * KINDS][128];
        int k = i % KINDS;
        snprintf(names[i], sizeof names[i], "%s.%s", i < KINDS ? LONG : "each", kinds[k].name);
        mmv_stats_add_metric(r, names[i], i, kinds[k].type, kinds[k].sem, kinds[k].units, i < KINDS ? 0 : 8, "short",
                             i % 2 ? "long" : NULL);
    }
    return r;
}

static mmv_registry_t *version3(const char *file, int flags)
{
    mmv_registry_t *r = version2(file, flags);
    mmv_stats_add_registry_label(r, "tier", "\"web\"", MMV_STRING_TYPE, 0);
    mmv_stats_add_registry_label(r, "shards", "[1,2]", MMV_ARRAY_TYPE, 0);
    mmv_stats_add_metric_label(r, 3, "unit", "3.5", MMV_NUMBER_TYPE, 0);
    mmv_stats_add_metric_label(r, KINDS + 3, "each", "true", MMV_BOOLEAN_TYPE, 0);
    mmv_stats_add_metric_label(r, KINDS + 3, "note", "\"optional\"", MMV_STRING_TYPE, 1);
    mmv_stats_add_indom_label(r, 8, "kind", "\"letter\"", MMV_STRING_TYPE, 0);
    mmv_stats_add_instance_label(r, 8, 0, "greek", "true", MMV_BOOLEAN_TYPE, 0);
    mmv_stats_add_instance_label(r, 8, 5, "greek", "{\"all\":false}", MMV_MAP_TYPE, 0);
    return r;
}

int main(int argc, char **argv)
{
    int version = atoi(argv[1]), flags = atoi(argv[2]);
    const char *file = argv[3];
    void *map;

    (void)argc;
    if (version == 1)
        map = version1(file, flags);
    else
        map = mmv_stats_start(version == 2 ? version2(file, flags) : version3(file, flags));
    if (!map) {
        perror("mmv_stats");
        return 1;
    }
    /* With sentinels, half of the values stay away. */
    if (flags & MMV_FLAG_SENTINEL) {
        for (int i = 0; i < KINDS; i++) {
            char metric[128];
            pmAtomValue none;
            memset(&none, -1, sizeof none);
            snprintf(metric, sizeof metric, "each.%s", kinds[i].name);
            /* The agent of PCP 6.0 shows a NaN. */
            if (kinds[i].type != MMV_TYPE_STRING && kinds[i].type != MMV_TYPE_FLOAT && kinds[i].type != MMV_TYPE_DOUBLE)
                mmv_set_atomvalue(map, mmv_lookup_value_desc(map, metric, version == 1 ? "two" : "alpha"), &none);
        }
    } else {
        fill(map, "each", version == 1 ? "two" : "alpha", 2);
    }
    fill(map, version == 1 ? "one" : LONG, NULL, 1);
    fill(map, "each", version == 1 ? "three" : LONG, 3);
    return 0;
}
