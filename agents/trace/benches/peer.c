/* Traces points with libpcp_trace. The argument names the protocol. Reads numbers from standard input: for each, traces as
 * many points, and writes the time in nanoseconds and the number of failures. */
#include <pcp/trace.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

int main(int argc, char **argv)
{
    long count, failed = 0;
    struct timespec begin, end;

    if (argc > 1 && strcmp(argv[1], "async") == 0)
        pmtracestate(PMTRACE_STATE_ASYNC);
    while (scanf("%ld", &count) == 1) {
        clock_gettime(CLOCK_MONOTONIC, &begin);
        for (long i = 0; i < count; i++)
            failed += pmtracepoint("a point") < 0;
        clock_gettime(CLOCK_MONOTONIC, &end);
        printf("%ld %ld\n", (end.tv_sec - begin.tv_sec) * 1000000000 + end.tv_nsec - begin.tv_nsec, failed);
        fflush(stdout);
    }
    return 0;
}
