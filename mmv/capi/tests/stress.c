/* Updates from two processes with THREADS threads each: none may be lost.
 *
 *   cc -O2 stress.c -lpcp_mmv -lpcp -lpthread; ./a.out FILE UPDATES [THREADS]
 *
 * UPDATES is the number of all updates together. The exit code is 1 if one is lost. */
#include <pcp/pmapi.h>
#include <pcp/mmv_stats.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KINDS = 4 };
static mmv_metric_t metrics[KINDS] = {
    { .name = "u64", .item = 1, .type = MMV_TYPE_U64, .semantics = MMV_SEM_COUNTER },
    { .name = "u32", .item = 2, .type = MMV_TYPE_U32, .semantics = MMV_SEM_COUNTER },
    { .name = "double", .item = 3, .type = MMV_TYPE_DOUBLE, .semantics = MMV_SEM_COUNTER },
    { .name = "i64", .item = 4, .type = MMV_TYPE_I64, .semantics = MMV_SEM_COUNTER },
};
static void *map;
static pmAtomValue *values[KINDS];
static uint64_t each;

static void *update(void *unused)
{
    pmAtomValue one = { .ull = 1 };
    for (uint64_t i = 0; i < each; i++) {
        switch (i % KINDS) {
        case 0: mmv_inc_value(map, values[0], 1); break;
        case 1: mmv_inc(map, values[1]); break;
        case 2: mmv_inc_value(map, values[2], 1); break;
        default: mmv_add(map, values[3], &one); break;
        }
    }
    return unused;
}

int main(int argc, char **argv)
{
    int threads = argc > 3 ? atoi(argv[3]) : 4, status = 0, bad = 0;
    pthread_t *all = calloc(threads, sizeof *all);

    if (argc < 3)
        return 2;
    /* A multiple of the kinds, for each thread of both processes. */
    each = strtoull(argv[2], NULL, 10) / (2 * threads) / KINDS * KINDS;
    map = mmv_stats_init(argv[1], 1, MMV_FLAG_PROCESS, metrics, KINDS, NULL, 0);
    if (!map) {
        perror("mmv_stats_init");
        return 2;
    }
    for (int k = 0; k < KINDS; k++)
        values[k] = mmv_lookup_value_desc(map, metrics[k].name, NULL);
    pid_t child = fork();
    for (int t = 0; t < threads; t++)
        pthread_create(&all[t], NULL, update, NULL);
    for (int t = 0; t < threads; t++)
        pthread_join(all[t], NULL);
    if (child == 0)
        _exit(0);
    waitpid(child, &status, 0);
    uint64_t expected = 2 * threads * (each / KINDS);
    uint64_t counted[KINDS] = { values[0]->ull, values[1]->ul, (uint64_t)values[2]->d, values[3]->ull };
    for (int k = 0; k < KINDS; k++) {
        uint64_t right = k == 1 ? (uint32_t)expected : expected;
        printf("%-8s %" PRIu64 " of %" PRIu64 "\n", metrics[k].name, counted[k], right);
        bad |= counted[k] != right;
    }
    mmv_stats_stop(argv[1], map);
    return bad || status != 0;
}
