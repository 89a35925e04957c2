/* Calls that interrupt others: by a signal, by the end of a thread, by a limit of memory.
 *
 *   cc -O2 hostile.c -lpcp_mmv -lpcp -lpthread; ./a.out signal|cancel|memory
 *
 * Files are in $PCP_TMP_DIR/mmv. The exit code is 1 if a process has ended by a signal, or has not ended. */
#include <pcp/pmapi.h>
#include <pcp/mmv_stats.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECONDS = 60, METRICS = 10000 };
static mmv_metric_t metrics[METRICS];
static pmUnits units;
static void *running;

static void *start(const char *name, int count)
{
    return mmv_stats_init(name, 50, MMV_FLAG_PROCESS, metrics, count, NULL, 0);
}

static mmv_registry_t *describe(const char *name)
{
    mmv_registry_t *registry = mmv_stats_registry(name, 51, MMV_FLAG_PROCESS);

    if (registry != NULL)
        mmv_stats_add_metric(registry, "m", 1, MMV_TYPE_U64, MMV_SEM_COUNTER, units, PM_INDOM_NULL, "short", "help");
    return registry;
}

/* Runs a function in a process of its own. */
static void run(void (*work)(int), int round)
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        alarm(SECONDS);
        work(round);
        _exit(0);
    }
    if (waitpid(child, &status, 0) != child || status != 0) {
        fprintf(stderr, "round %d: status %#x\n", round, status);
        exit(1);
    }
}

static void stop_and_exit(int unused)
{
    (void)unused;
    mmv_stats_stop("running", running);
    _exit(access(getenv("RUNNING"), F_OK) == 0);
}

/* A handler stops an export and ends the process, whatever call it has interrupted. */
static void interrupted(int round)
{
    struct itimerval timer = { .it_value = { 0, 500 + 7 * round } };

    running = start("running", 2);
    signal(SIGPROF, stop_and_exit);
    setitimer(ITIMER_PROF, &timer, NULL);
    for (;;)
        mmv_stats_stop("other", start("other", 2));
}

__attribute__((noreturn)) static void *start_and_stop(void *name)
{
    for (;;) {
        mmv_registry_t *registry = describe(name);

        mmv_stats_start(registry);
        mmv_stats_free(registry);
        mmv_stats_stop(name, start(name, 2));
        pthread_testcancel();
    }
}

/* The first look-up and the first label of a thread may wait for random numbers, which is a cancellation point. */
__attribute__((noreturn)) static void *look_up_and_label(void *handle)
{
    mmv_registry_t *registry = describe("labelled");

    pthread_cancel(pthread_self());
    mmv_lookup_value_desc(handle, "m", NULL);
    mmv_stats_add_registry_label(registry, "label", "{\"of\":1}", MMV_MAP_TYPE, 0);
    mmv_stats_free(registry);
    pthread_testcancel();
    _exit(1);
}

static void *label(void *unused)
{
    mmv_registry_t *registry = describe("labelled");

    pthread_cancel(pthread_self());
    mmv_stats_add_registry_label(registry, "label", "{\"of\":1}", MMV_MAP_TYPE, 0);
    mmv_stats_free(registry);
    return unused;
}

/* Threads are cancelled while they start and stop exports, and before look-ups and labels. */
static void cancelled(int round)
{
    pthread_t threads[2];

    running = start("looked up", 2);
    pthread_create(&threads[0], NULL, look_up_and_label, running);
    pthread_create(&threads[1], NULL, label, NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    mmv_stats_stop("looked up", running);

    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, start_and_stop, i ? "one" : "two");
    usleep(200 + round);
    for (int i = 0; i < 2; i++)
        pthread_cancel(threads[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    running = start("running", 2);
    if (running == NULL)
        _exit(1);
    mmv_stats_stop("running", running);
}

/* The process may have a few bytes of memory more than it has. */
static void limited(int round)
{
    char name[32];
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    struct rlimit limit;
    mmv_registry_t *registry;

    if (file == NULL || fscanf(file, "%ld", &pages) != 1)
        _exit(1);
    fclose(file);
    limit.rlim_cur = limit.rlim_max = pages * sysconf(_SC_PAGESIZE) + round * 50000L;
    setrlimit(RLIMIT_AS, &limit);
    registry = describe("limited");
    mmv_stats_add_indom(registry, 1, "short", "help");
    for (int i = 0; i < METRICS; i++) {
        snprintf(name, sizeof name, "m%d", i);
        mmv_stats_add_metric(registry, name, i, MMV_TYPE_U64, MMV_SEM_COUNTER, units, PM_INDOM_NULL, "short", "help");
        mmv_stats_add_instance(registry, 1, i, name);
    }
    running = mmv_stats_start(registry);
    mmv_lookup_value_desc(running, "m5", NULL);
    mmv_stats_free(registry);
    running = start("limited", METRICS);
    mmv_lookup_value_desc(running, "m", NULL);
    mmv_stats_stop("limited", running);
}

int main(int argc, char **argv)
{
    int is_signal = argc == 2 && strcmp(argv[1], "signal") == 0, is_cancel = argc == 2 && strcmp(argv[1], "cancel") == 0;

    for (int i = 0; i < METRICS; i++) {
        strcpy(metrics[i].name, "m");
        metrics[i].item = i;
        metrics[i].type = MMV_TYPE_U64;
        metrics[i].semantics = MMV_SEM_COUNTER;
        metrics[i].indom = PM_INDOM_NULL;
    }
    for (int round = 0; round < 100; round++)
        run(is_signal ? interrupted : is_cancel ? cancelled : limited, round);
    return 0;
}
