/*
 * Writes an archive with libpcp_import and prints the CPU time in seconds: import BASE METRICS INSTANCES RECORDS.
 * The header of the library may be missing, so its functions are declared here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <pcp/pmapi.h>

extern int pmiStart(const char *, int);
extern int pmiSetVersion(int);
extern int pmiSetHostname(const char *);
extern int pmiSetTimezone(const char *);
extern int pmiAddMetric(const char *, pmID, int, pmInDom, int, pmUnits);
extern int pmiAddInstance(pmInDom, const char *, int);
extern int pmiPutResult(const pmResult *);
extern int pmiEnd(void);

static double
cpu(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static void
check(int sts, const char *what)
{
    if (sts < 0) {
        fprintf(stderr, "%s: %d\n", what, sts);
        exit(1);
    }
}

int
main(int argc, char **argv)
{
    int metrics = atoi(argv[2]), instances = atoi(argv[3]), records = atoi(argv[4]);
    pmUnits units = { 0 };
    pmInDom indom = pmInDom_build(253, 7);
    char name[64];
    double start = cpu();

    check(pmiStart(argv[1], 0), "pmiStart");
    check(pmiSetHostname("host"), "pmiSetHostname");
    check(pmiSetTimezone("UTC"), "pmiSetTimezone");
    for (int m = 0; m < metrics; m++) {
        snprintf(name, sizeof(name), "bench.metric%d", m);
        check(pmiAddMetric(name, pmID_build(253, 0, m), m % 2 ? PM_TYPE_U64 : PM_TYPE_U32, indom, PM_SEM_COUNTER, units), name);
    }
    for (int i = 0; i < instances; i++) {
        snprintf(name, sizeof(name), "instance%d", i);
        check(pmiAddInstance(indom, name, i), name);
    }
    pmResult *result = malloc(sizeof(pmResult) + metrics * sizeof(pmValueSet *));
    result->numpmid = metrics;
    for (int m = 0; m < metrics; m++) {
        pmValueSet *set = malloc(sizeof(pmValueSet) + instances * sizeof(pmValue));
        set->pmid = pmID_build(253, 0, m);
        set->numval = instances;
        set->valfmt = m % 2 ? PM_VAL_DPTR : PM_VAL_INSITU;
        for (int i = 0; i < instances; i++) {
            set->vlist[i].inst = i;
            if (m % 2) {
                pmValueBlock *block = malloc(sizeof(int) + 8);
                block->vtype = PM_TYPE_U64;
                block->vlen = 12;
                set->vlist[i].value.pval = block;
            }
        }
        result->vset[m] = set;
    }
    for (int r = 0; r < records; r++) {
        result->timestamp.tv_sec = 1700000000 + r;
        result->timestamp.tv_usec = 0;
        for (int m = 0; m < metrics; m++) {
            for (int i = 0; i < instances; i++) {
                unsigned long long value = (unsigned long long)r * 1000 + i;
                if (m % 2)
                    memcpy(result->vset[m]->vlist[i].value.pval->vbuf, &value, 8);
                else
                    result->vset[m]->vlist[i].value.lval = (int)value;
            }
        }
        check(pmiPutResult(result), "pmiPutResult");
    }
    check(pmiEnd(), "pmiEnd");
    printf("%.4f\n", cpu() - start);
    return 0;
}
