/* The operations of benches/cache/main.rs on pmdaCache(3): prints a line of label and nanoseconds for each. */
#include <pcp/pmapi.h>
#include <pcp/pmda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double since;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void begin(void)
{
    since = now();
}

static void end(const char *label, long n)
{
    printf("%s\t%.3f\n", label, (now() - since) / n);
}

static long resident(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    long size = 0, pages = 0;
    if (f == NULL)
        return 0;
    if (fscanf(f, "%ld %ld", &size, &pages) != 2)
        pages = 0;
    fclose(f);
    return pages * 4096;
}

int main(int argc, char **argv)
{
    long n = atol(argv[1]), keyed = atol(argv[2]), i, at, before;
    pmInDom indom = pmInDom_build(400, 5), other = pmInDom_build(400, 6), third = pmInDom_build(400, 7);
    char (*names)[32] = malloc(n * 32), *name;
    void *value;
    int inst;

    pmSetProgname("peer");
    if (argc > 3) {
        begin();
        pmdaCacheOp(indom, PMDA_CACHE_LOAD);
        end("load", n);
        return 0;
    }
    for (i = 0; i < n; i++)
        snprintf(names[i], 32, "inst-%010ld", i * 7919 % n);
    before = resident();
    begin();
    for (i = 0; i < n; i++)
        pmdaCacheStore(indom, PMDA_CACHE_ADD, names[i], names[i]);
    end("store, new", n);
    printf("bytes an instance\t%.3f\n", (double)(resident() - before) / n);
    begin();
    for (i = 0, at = 0; i < n; i++, at = (at + 611953) % n)
        pmdaCacheStore(indom, PMDA_CACHE_ADD, names[at], names[at]);
    end("store, again", n);
    begin();
    for (i = 0, at = 0; i < n; i++, at = (at + 611953) % n)
        pmdaCacheLookupName(indom, names[at], &inst, &value);
    end("look up by name", n);
    begin();
    for (i = 0, at = 0; i < n; i++, at = (at + 611953) % n)
        pmdaCacheLookup(indom, at, &name, &value);
    end("look up by number", n);
    begin();
    pmdaCacheOp(indom, PMDA_CACHE_WALK_REWIND);
    while ((inst = pmdaCacheOp(indom, PMDA_CACHE_WALK_NEXT)) != -1)
        pmdaCacheLookup(indom, inst, &name, &value);
    end("walk, with name and value", n);
    begin();
    pmdaCacheOp(indom, PMDA_CACHE_SIZE_ACTIVE);
    end("number of active instances", 1);
    begin();
    pmdaCacheOp(indom, PMDA_CACHE_SAVE);
    end("save", n);
    begin();
    pmdaCacheOp(indom, PMDA_CACHE_INACTIVE);
    end("hide all", n);
    begin();
    pmdaCacheOp(indom, PMDA_CACHE_ACTIVE);
    end("activate all", n);
    begin();
    for (i = 0, at = 0; i < n / 2; i++, at = (at + 611953) % n)
        pmdaCacheStore(indom, PMDA_CACHE_CULL, names[at], NULL);
    end("cull half", n / 2);
    begin();
    for (i = 0; i < keyed; i++)
        pmdaCacheStoreKey(other, PMDA_CACHE_ADD, names[i], sizeof(i), &i, NULL);
    end("store by key", keyed);
    begin();
    for (i = 0; i < keyed / 10; i++)
        pmdaCacheLookupKey(other, NULL, sizeof(i), &i, &name, &inst, &value);
    end("look up by key", keyed / 10);
    pmdaCacheOp(third, PMDA_CACHE_REUSE);
    begin();
    for (i = 0; i < keyed; i++)
        pmdaCacheStore(third, PMDA_CACHE_ADD, names[i], NULL);
    end("store, lowest free number", keyed);
    return 0;
}
