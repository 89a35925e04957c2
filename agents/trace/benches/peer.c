/* Points with libpcp_trace: the argument names the protocol; for each number that comes, as many, and the nanoseconds. */
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
