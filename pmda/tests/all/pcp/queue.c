/* A single client of an event queue of libpcp_pmda. The first argument is the size of the queue in bytes. For each
 * further argument that number of events is added, with ascending numbers, and a fetch prints its events as a line. */

#include <pcp/pmapi.h>
#include <pcp/pmda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

static int decode(int array, void *event, size_t size, struct timeval *time, void *data)
{
    int sts = pmdaEventAddRecord(array, time, PM_EVENT_FLAG_POINT);

    (void)data;
    printf("%.*s ", (int)size, (char *)event);
    return sts < 0 ? sts : 1;
}

int main(int argc, char **argv)
{
    int queue = pmdaEventNewQueue("queue", (size_t)atoi(argv[1]));
    int number = 0;

    pmdaEventNewClient(1);
    pmdaEventSetAccess(1, queue, 1);
    for (int i = 2; i < argc; i++) {
        pmAtomValue atom;

        for (int n = atoi(argv[i]); n > 0; n--) {
            char text[8];
            struct timeval now;

            gettimeofday(&now, NULL);
            snprintf(text, sizeof(text), "%04d", ++number);
            if (pmdaEventQueueAppend(queue, text, 4, &now) < 0)
                return 1;
        }
        if (pmdaEventQueueRecords(queue, &atom, 1, decode, NULL) < 0)
            return 1;
        pmdaEventQueueMemory(queue, &atom);
        printf("memory %llu ", (unsigned long long)atom.ull);
        pmdaEventQueueCounter(queue, &atom);
        printf("count %u ", atom.ul);
        pmdaEventQueueClients(queue, &atom);
        printf("clients %u\n", atom.ul);
    }
    return 0;
}
