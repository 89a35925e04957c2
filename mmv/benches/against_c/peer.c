/* The C side of benches/against_c: the C library's updates, and bare atomics on its mapped page.
 * Compiled with cc -O2 peer.c -lpcp_mmv -lpcp -lpthread. Prints lines "name nanoseconds". With argument UPDATES it makes
 * fewer updates, by one thread, and nothing else, and prints the time of the fastest round instead of the median. With arguments FILES METRICS INSTANCES it prints the nanoseconds until all files exist, and those of the starts alone. */
#define _GNU_SOURCE
#include <pcp/pmapi.h>
#include <pcp/mmv_stats.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 11 };

static double clock_of(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

/* Processor time, because other programs use the machine too. */
static double now(void)
{
    return clock_of(CLOCK_PROCESS_CPUTIME_ID);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int chosen = ROUNDS / 2;

static void report(const char *name, double *rounds)
{
    qsort(rounds, ROUNDS, sizeof *rounds, ascending);
    printf("%s %.3f\n", name, rounds[chosen]);
    fflush(stdout);
}

#define MEASURE(name, n, code)                          \
    do {                                                \
        double rounds[ROUNDS];                          \
        for (int r = 0; r < ROUNDS; r++) {              \
            double start = now();                       \
            for (long i = 0; i < (n); i++) { code; }    \
            rounds[r] = (now() - start) / (n);          \
        }                                               \
        report(name, rounds);                           \
    } while (0)

static void *map;
static pmAtomValue *shared;
static int exact;
enum { SHARED_UPDATES = 200000, TRIES = 3000 };

static void *update(void *cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((long)cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
    for (long i = 0; i < SHARED_UPDATES; i++) {
        if (exact)
            __atomic_fetch_add(&shared->ull, 1, __ATOMIC_RELAXED);
        else
            mmv_inc_value(map, shared, 1);
    }
    return NULL;
}

static void two_threads(const char *name, int is_exact)
{
    double rounds[ROUNDS] = { 0 };
    unsigned long long lost = 0;
    exact = is_exact;
    /* Rounds in which the threads did not run in parallel say nothing about contention. */
    for (int r = 0, try = 0; r < ROUNDS && try < TRIES; try++) {
        pthread_t threads[2];
        double start = now(), begin = clock_of(CLOCK_MONOTONIC), taken;
        shared->ull = 0;
        for (long i = 0; i < 2; i++)
            pthread_create(&threads[i], NULL, update, (void *)i);
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        taken = now() - start;
        if (taken > 1.7 * (clock_of(CLOCK_MONOTONIC) - begin)) {
            rounds[r++] = taken / (2.0 * SHARED_UPDATES);
            lost += 2ULL * SHARED_UPDATES - shared->ull;
        }
    }
    report(name, rounds);
    printf("%s_lost_percent %.2f\n", name, 100.0 * lost / (2.0 * SHARED_UPDATES * ROUNDS));
}

/* Finds a value among a thousand. */
static void lookup(void)
{
    static mmv_metric_t m[1000];
    for (int i = 0; i < 1000; i++) {
        snprintf(m[i].name, MMV_NAMEMAX, "m.metric%d", i);
        m[i].item = i;
        m[i].type = MMV_TYPE_U64;
        m[i].semantics = MMV_SEM_COUNTER;
        m[i].indom = PM_INDOM_NULL;
    }
    void *base = mmv_stats_init("lookup", 50, 0, m, 1000, NULL, 0);
    MEASURE("lookup_by_name", 20000, if (!mmv_lookup_value_desc(base, "m.metric500", NULL)) abort());
    mmv_stats_stop("lookup", base);
}

/* Prints the time until all files exist, with the registration and without it. The metrics are over an instance
 * domain, or singular if instances is 0. */
static void start(int files, int metrics, int instances)
{
    char (*name)[MMV_NAMEMAX] = calloc(metrics, MMV_NAMEMAX), (*instance)[MMV_NAMEMAX] = calloc(instances + 1, MMV_NAMEMAX);
    pmUnits units = { 0 };
    double begin, starts = 0;
    char file[64];

    for (int i = 0; i < metrics; i++)
        snprintf(name[i], MMV_NAMEMAX, "m.metric%d", i);
    for (int i = 0; i < instances; i++)
        snprintf(instance[i], MMV_NAMEMAX, "inst%d", i);
    begin = now();
    for (int f = 0; f < files; f++) {
        snprintf(file, sizeof file, "file%d", f);
        mmv_registry_t *registry = mmv_stats_registry(file, 50, 0);
        if (instances)
            mmv_stats_add_indom(registry, 1, "short", "help");
        for (int i = 0; i < instances; i++)
            mmv_stats_add_instance(registry, 1, i, instance[i]);
        for (int i = 0; i < metrics; i++)
            mmv_stats_add_metric(registry, name[i], i, MMV_TYPE_U64, MMV_SEM_COUNTER, units,
                                 instances ? 1 : PM_INDOM_NULL, "short", "help");
        starts -= now();
        if (!mmv_stats_start(registry))
            abort();
        starts += now();
    }
    printf("%.0f %.0f\n", now() - begin, starts);
}

int main(int argc, char **argv)
{
    mmv_metric_t metrics[] = {
        { .name = "u64", .item = 1, .type = MMV_TYPE_U64, .semantics = MMV_SEM_COUNTER, .indom = PM_INDOM_NULL },
        { .name = "f64", .item = 2, .type = MMV_TYPE_DOUBLE, .semantics = MMV_SEM_INSTANT, .indom = PM_INDOM_NULL },
        { .name = "text", .item = 3, .type = MMV_TYPE_STRING, .semantics = MMV_SEM_INSTANT, .indom = PM_INDOM_NULL },
    };
    long updates = argc == 2 ? atol(argv[1]) : 2000000;

    if (argc == 4) {
        start(atoi(argv[1]), atoi(argv[2]), atoi(argv[3]));
        return 0;
    }
    if (argc == 2)
        chosen = 0;
    map = mmv_stats_init("peer", 50, 0, metrics, 3, NULL, 0);
    if (!map) {
        perror("mmv_stats_init");
        return 1;
    }
    shared = mmv_lookup_value_desc(map, "u64", NULL);
    pmAtomValue *number = mmv_lookup_value_desc(map, "f64", NULL);
    pmAtomValue *text = mmv_lookup_value_desc(map, "text", NULL);

    MEASURE("inc_value", updates, mmv_inc_value(map, shared, 1));
    MEASURE("inc", updates, mmv_inc(map, shared));
    MEASURE("set_value", updates, mmv_set_value(map, number, (double)i));
    MEASURE("set_string", updates / 10, mmv_set_string(map, text, "some words", 10));
    MEASURE("interval", updates / 20, mmv_stats_interval_end(map, mmv_stats_interval_start(map, shared, NULL, NULL)));
    MEASURE("atomic_add", updates, __atomic_fetch_add(&shared->ull, 1, __ATOMIC_RELAXED));
    MEASURE("atomic_store", updates, __atomic_store_n(&shared->ull, i, __ATOMIC_RELAXED));
    if (argc != 2) {
        lookup();
        two_threads("two_inc_value", 0);
        two_threads("two_atomic_add", 1);
    }
    mmv_stats_stop("peer", map);
    return 0;
}
