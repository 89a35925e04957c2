/* Processes that fork while other threads start exports: parent and child must go on.
 *
 *   cc -O2 -rdynamic forks.c -lpcp_mmv -lpcp -lpthread; ./a.out first | slow
 *
 *   first  two threads start the first exports of the process; repeated with ROUNDS processes. It is an error if in half
 *          of them a child cannot export
 *   slow   a thread waits for the disk during the fork; the child's own export may fail
 *
 * The exit code is 1 if a child hangs, or for that error. */
#define _GNU_SOURCE
#include <pcp/pmapi.h>
#include <pcp/mmv_stats.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { METRICS = 20, STARTS = 2, ROUNDS = 300, FAILED = 2 };
static int begun, ended, failed;
/* 0, 1 if the next mapping of a file is slow, 2 while it waits, 3 when it may go on. */
static int slow;

/* Takes the place of the C library's function in libpcp_mmv. */
void *mmap(void *at, size_t len, int protection, int flags, int file, off_t offset)
{
    int next = 1;

    if (file >= 0 && __atomic_compare_exchange_n(&slow, &next, 2, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
        while (__atomic_load_n(&slow, __ATOMIC_SEQ_CST) != 3)
            usleep(1000);
    }
    return (void *)syscall(SYS_mmap, at, len, protection, flags, file, offset);
}

/* Waits until all three threads run. */
static void begin(void)
{
    __sync_fetch_and_add(&begun, 1);
    while (__atomic_load_n(&begun, __ATOMIC_RELAXED) < 3)
        sched_yield();
}

static int export(const char *name)
{
    mmv_registry_t *registry = mmv_stats_registry(name, 14, 0);
    char metric[16];
    pmUnits units = { 0 };
    void *map;

    for (int i = 1; i <= METRICS; i++) {
        snprintf(metric, sizeof metric, "m%d", i);
        if (mmv_stats_add_metric(registry, metric, i, MMV_TYPE_U64, MMV_SEM_COUNTER, units, 0, "short", "long") < 0)
            return 1;
    }
    if ((map = mmv_stats_start(registry)) == NULL)
        return 1;
    mmv_stats_inc(map, "m1", "");
    mmv_stats_free(registry);
    return 0;
}

static void *starts(void *name)
{
    char file[16];

    begin();
    for (int i = 0; i < STARTS; i++) {
        snprintf(file, sizeof file, "%s%d", (const char *)name, i);
        if (export(file) != 0)
            exit(1);
    }
    return NULL;
}

/* Waits for a child, for at most two minutes. Returns its exit code. */
static int end_of(pid_t child)
{
    int status;

    for (int i = 0; i < 1200000; i++) {
        if (waitpid(child, &status, WNOHANG) == child)
            return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        usleep(100);
    }
    kill(child, SIGKILL);
    return -1;
}

static void *forks(void *seed)
{
    begin();
    while (!__atomic_load_n(&ended, __ATOMIC_RELAXED)) {
        pid_t child = fork();

        if (child == 0)
            _exit(export("child"));
        /* The export fails if another thread has waited for the disk for more than a second. */
        int code = end_of(child);

        if (code < 0)
            exit(1);
        failed |= code;
        usleep(rand_r(seed) % 300);
    }
    return NULL;
}

static int first(unsigned seed)
{
    pthread_t forking, one, other;

    pthread_create(&forking, NULL, forks, &seed);
    pthread_create(&one, NULL, starts, "one");
    pthread_create(&other, NULL, starts, "other");
    pthread_join(one, NULL);
    pthread_join(other, NULL);
    __atomic_store_n(&ended, 1, __ATOMIC_RELAXED);
    pthread_join(forking, NULL);
    return failed ? FAILED : 0;
}

static void *export_slowly(void *name)
{
    exit(export(name));
}

static int fork_beside_a_slow_export(void)
{
    pthread_t thread;
    pid_t child;
    int code;

    __atomic_store_n(&slow, 1, __ATOMIC_SEQ_CST);
    pthread_create(&thread, NULL, export_slowly, "slow");
    while (__atomic_load_n(&slow, __ATOMIC_SEQ_CST) != 2)
        usleep(1000);
    if ((child = fork()) == 0)
        _exit(export("child") == 0);
    code = end_of(child);
    __atomic_store_n(&slow, 3, __ATOMIC_SEQ_CST);
    if (code < 0)
        exit(1);
    /* The other thread ends the process. */
    return pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
    char round[16];
    int rounds_failed = 0;

    if (strcmp(argv[1], "slow") == 0)
        return fork_beside_a_slow_export();
    if (argc > 2)
        return first(atoi(argv[2]));
    for (int i = 0; i < ROUNDS; i++) {
        pid_t child = fork();

        if (child == 0) {
            /* In a new program, the first calls take longer. */
            snprintf(round, sizeof round, "%d", i);
            execl("/proc/self/exe", argv[0], argv[1], round, NULL);
            _exit(1);
        }
        int code = end_of(child);

        if (code != 0 && code != FAILED) {
            fprintf(stderr, "round %d\n", i);
            return 1;
        }
        rounds_failed += code == FAILED;
    }
    if (rounds_failed < ROUNDS / 2)
        return 0;
    fprintf(stderr, "children cannot export in %d rounds\n", rounds_failed);
    return 1;
}
