/* Traces from three threads, then from one. The argument names the protocol: sync or async. */
#include <pcp/trace.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *mode;

static void check(int sts)
{
    if (sts < 0)
        printf("%s\n", pmtraceerrstr(sts));
}

static const char *tag(char *buffer, const char *name)
{
    snprintf(buffer, 100, "%s %s", mode, name);
    return buffer;
}

static void *points(void *unused)
{
    char buffer[100];
    for (int i = 0; i < 500; i++)
        check(pmtracepoint(tag(buffer, "point")));
    return unused;
}

int main(int argc, char **argv)
{
    char buffer[100];
    pthread_t threads[3];

    mode = argc > 1 ? argv[1] : "sync";
    if (strcmp(mode, "async") == 0)
        check(pmtracestate(PMTRACE_STATE_ASYNC));
    check(pmtracepoint(tag(buffer, "first")));
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, points, NULL);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    points(NULL);
    for (int i = 0; i < 300; i++) {
        check(pmtracebegin(tag(buffer, "transact")));
        check(pmtraceend(tag(buffer, "transact")));
        check(pmtracebegin(tag(buffer, "aborted")));
        check(pmtraceabort(tag(buffer, "aborted")));
    }
    for (int i = 0; i < 500; i++) {
        check(pmtraceobs(tag(buffer, "observe"), i * 0.25));
        check(pmtracecounter(tag(buffer, "counter"), i));
    }
    /* The library resets its connection at exit, and loses what it has not sent yet. */
    sleep(1);
    return 0;
}
