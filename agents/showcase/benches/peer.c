/* Clusters 0 to 2 of agent showcase on libpcp_pmda: a cached domain, singular metrics, a fixed domain; -n N instances. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pcp/pmapi.h>
#include <pcp/pmda.h>

enum { CACHED, SINGLE, FIXED };
enum { WORD, LONG, REAL, TEXT, COLUMNS };
enum { SINGLES = 1000 };

struct row {
    unsigned int word;
    unsigned long long longer;
    double real;
    char text[20];
};

static struct row *rows;
static unsigned int instances;
static unsigned int fetches;
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

    if (cluster == SINGLE) {
        atom->ul = item + fetches;
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

static int fetch(int count, pmID *pmids, pmResult **result, pmdaExt *ext)
{
    fetches++;
    return pmdaFetch(count, pmids, result, ext);
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
    static const int types[COLUMNS] = { PM_TYPE_U32, PM_TYPE_U64, PM_TYPE_DOUBLE, PM_TYPE_STRING };
    static pmdaMetric metrics[2 * COLUMNS + SINGLES];
    static pmdaIndom indoms[2] = { { 0, 0, NULL }, { 1, 0, NULL } };
    static pmdaOptions options = { .short_options = "d:l:n:" };
    pmdaInterface agent;
    char name[32];
    unsigned int i;
    int option;

    pmSetProgname(argv[0]);
    pmdaDaemon(&agent, PMDA_INTERFACE_7, "peer", 400, "peer.log", NULL);
    while ((option = pmdaGetOptions(argc, argv, &options, &agent)) != EOF)
        if (option == 'n')
            instances = atoi(options.optarg);
    pmdaOpenLog(&agent);

    rows = calloc(instances + 1, sizeof *rows);
    indoms[1].it_numinst = instances;
    indoms[1].it_set = calloc(instances + 1, sizeof *indoms[1].it_set);
    for (i = 0; i < instances; i++) {
        rows[i].word = i * 7;
        rows[i].longer = (unsigned long long)i << 33;
        rows[i].real = i * 1.5;
        snprintf(rows[i].text, sizeof rows[i].text, "value-%010u", i);
        snprintf(name, sizeof name, "inst-%010u", i);
        indoms[1].it_set[i].i_inst = i;
        indoms[1].it_set[i].i_name = strdup(name);
    }
    for (i = 0; i < COLUMNS; i++) {
        describe(&metrics[i], CACHED, i, types[i], 0);
        describe(&metrics[COLUMNS + i], FIXED, i, types[i], 1);
    }
    for (i = 0; i < SINGLES; i++)
        describe(&metrics[2 * COLUMNS + i], SINGLE, i, PM_TYPE_U32, PM_INDOM_NULL);

    agent.version.any.fetch = fetch;
    pmdaSetFetchCallBack(&agent, value);
    pmdaSetFlags(&agent, PMDA_EXT_FLAG_HASHED);
    pmdaInit(&agent, indoms, 2, metrics, 2 * COLUMNS + SINGLES);
    cached = indoms[0].it_indom;
    pmdaCacheOp(cached, PMDA_CACHE_CULL);
    for (i = 0; i < instances; i++)
        pmdaCacheStore(cached, PMDA_CACHE_ADD, indoms[1].it_set[i].i_name, &rows[i]);
    pmdaConnect(&agent);
    pmdaMain(&agent);
    return 0;
}
