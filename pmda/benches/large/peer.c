/* The agent of the bench on libpcp_pmda: a cached domain, a fixed one, singular metrics. */
#include <stdio.h>
#include <stdlib.h>
#include <pcp/pmapi.h>
#include <pcp/pmda.h>

enum { CACHED, ONE, FIXED };
enum { WORD, LONG, REAL, TEXT, TYPES };

struct row {
    unsigned int word;
    unsigned long long longer;
    double real;
    char text[20];
};

static struct row *rows;
static unsigned int instances;
static pmInDom cached;

static struct row *find(unsigned int cluster, unsigned int inst)
{
    void *found = NULL;

    if (cluster == CACHED)
        return pmdaCacheLookup(cached, inst, NULL, &found) == PMDA_CACHE_ACTIVE ? found : NULL;
    return inst < instances ? &rows[inst] : NULL;
}

static int value(pmdaMetric *metric, unsigned int inst, pmAtomValue *atom)
{
    unsigned int cluster = pmID_cluster(metric->m_desc.pmid);
    unsigned int item = pmID_item(metric->m_desc.pmid);
    struct row *row;

    if (cluster == ONE) {
        atom->ul = item;
        return PMDA_FETCH_STATIC;
    }
    if ((row = find(cluster, inst)) == NULL)
        return PM_ERR_INST;
    switch (item) {
    case WORD:
        atom->ul = row->word;
        return PMDA_FETCH_STATIC;
    case LONG:
        atom->ull = row->longer;
        return PMDA_FETCH_STATIC;
    case REAL:
        atom->d = row->real;
        return PMDA_FETCH_STATIC;
    case TEXT:
        atom->cp = row->text;
        return PMDA_FETCH_STATIC;
    }
    return PM_ERR_PMID;
}

static void describe(pmdaMetric *metric, unsigned int cluster, unsigned int item, int type, pmInDom indom)
{
    metric->m_desc.pmid = PMDA_PMID(cluster, item);
    metric->m_desc.type = type;
    metric->m_desc.indom = indom;
    metric->m_desc.sem = PM_SEM_INSTANT;
}

int main(int argc, char **argv)
{
    static const int types[TYPES] = { PM_TYPE_U32, PM_TYPE_U64, PM_TYPE_DOUBLE, PM_TYPE_STRING };
    static pmdaMetric metrics[2 * TYPES + 1000];
    static pmdaIndom indoms[2] = { { 0, 0, NULL }, { 1, 0, NULL } };
    pmdaInterface agent;
    char name[32];
    unsigned int i;
    int bad = 0;

    pmSetProgname(argv[0]);
    pmdaDaemon(&agent, PMDA_INTERFACE_7, "large", 400, "large.log", NULL);
    while (pmdaGetOpt(argc, argv, "d:l:", &agent, &bad) != EOF)
        ;
    pmdaOpenLog(&agent);

    instances = atoi(getenv("PMDA_BENCH_INSTANCES"));
    rows = calloc(instances, sizeof *rows);
    indoms[1].it_numinst = instances;
    indoms[1].it_set = calloc(instances, sizeof *indoms[1].it_set);
    for (i = 0; i < instances; i++) {
        rows[i].word = i * 13;
        rows[i].longer = (unsigned long long)i << 24;
        rows[i].real = i * 0.25;
        snprintf(rows[i].text, sizeof rows[i].text, "text of %08u", i);
        snprintf(name, sizeof name, "instance-%07u", i);
        indoms[1].it_set[i].i_inst = i;
        indoms[1].it_set[i].i_name = strdup(name);
    }
    for (i = 0; i < TYPES; i++) {
        describe(&metrics[i], CACHED, i, types[i], 0);
        describe(&metrics[TYPES + i], FIXED, i, types[i], 1);
    }
    for (i = 0; i < 1000; i++)
        describe(&metrics[2 * TYPES + i], ONE, i, PM_TYPE_U32, PM_INDOM_NULL);

    pmdaSetFetchCallBack(&agent, value);
    pmdaSetFlags(&agent, PMDA_EXT_FLAG_HASHED);
    pmdaInit(&agent, indoms, 2, metrics, 2 * TYPES + 1000);
    cached = indoms[0].it_indom;
    for (i = 0; i < instances; i++)
        pmdaCacheStore(cached, PMDA_CACHE_ADD, indoms[1].it_set[i].i_name, &rows[i]);
    pmdaConnect(&agent);
    pmdaMain(&agent);
    return 0;
}
