/*
 * Measures the time of a fetch in two shared objects of one agent, which are loaded as pmcd does. Blocks of fetches
 * alternate between the two.
 *
 * objects INIT DOMAIN FILE FILE CLUSTER.ITEM... prints one line: the median time of a fetch in nanoseconds for each
 * file, and the median ratio of the second file's blocks to the first's.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <pcp/pmapi.h>
#include <pcp/pmda.h>

enum { BLOCKS = 40, ROUNDS = 5000, MOST = 32 };

static pmID pmids[MOST];
static int count;

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *of)
{
    qsort(of, BLOCKS, sizeof *of, ascending);
    return of[BLOCKS / 2];
}

static void load(const char *file, const char *init, int domain, pmdaInterface *agent)
{
    static pmProfile all = { .state = PM_PROFILE_INCLUDE };
    void *object = dlopen(file, RTLD_NOW);
    void (*start)(pmdaInterface *) = object ? (void (*)(pmdaInterface *))dlsym(object, init) : NULL;

    if (start == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    agent->domain = domain;
    agent->comm.pmda_interface = PMDA_INTERFACE_LATEST;
    agent->comm.pmapi_version = ~PMAPI_VERSION;
    start(agent);
    if (agent->status < 0) {
        fprintf(stderr, "%s: %s\n", file, pmErrStr(agent->status));
        exit(1);
    }
    agent->comm.pmapi_version = PMAPI_VERSION;
    agent->version.any.profile(&all, agent->version.any.ext);
}

/* Fetches, and frees the result as pmcd does. Returns the number of values. */
static int fetch(pmdaInterface *agent)
{
    pmID asked[MOST];
    pmResult *result;
    int values = 0;
    int i, j;

    memcpy(asked, pmids, sizeof asked);
    if (agent->version.any.fetch(count, asked, &result, agent->version.any.ext) < 0)
        exit(1);
    for (i = 0; i < result->numpmid; i++) {
        pmValueSet *set = result->vset[i];

        for (j = 0; j < set->numval; j++)
            if (set->valfmt == PM_VAL_DPTR)
                free(set->vlist[j].value.pval);
        values += set->numval > 0 ? set->numval : 0;
        free(set);
    }
    return values;
}

static double block(pmdaInterface *agent)
{
    double start = now();
    int i;

    for (i = 0; i < ROUNDS; i++)
        fetch(agent);
    return (now() - start) / ROUNDS;
}

int main(int argc, char **argv)
{
    static pmdaInterface agents[2];
    static double times[2][BLOCKS], ratios[BLOCKS];
    int domain, values[2], i, j;

    if (argc < 6 || argc - 5 > MOST)
        return 2;
    domain = atoi(argv[2]);
    for (i = 5; i < argc; i++) {
        unsigned int cluster, item;

        if (sscanf(argv[i], "%u.%u", &cluster, &item) != 2)
            return 2;
        pmids[count++] = pmID_build(domain, cluster, item);
    }
    for (i = 0; i < 2; i++) {
        load(argv[3 + i], argv[1], domain, &agents[i]);
        block(&agents[i]);
        values[i] = fetch(&agents[i]);
    }
    if (values[0] != values[1]) {
        fprintf(stderr, "%d values of one, %d of the other\n", values[0], values[1]);
        return 1;
    }
    for (i = 0; i < BLOCKS; i++) {
        for (j = 0; j < 2; j++) {
            int which = (i + j) % 2;

            times[which][i] = block(&agents[which]);
        }
        ratios[i] = times[1][i] / times[0][i];
    }
    printf("%.1f %.1f %.3f\n", median(times[0]), median(times[1]), median(ratios));
    return 0;
}
