/*
 * An agent with 10,000 instances, as a shared object and as a daemon: a value of type U32, U64, double and string for each.
 */
#include <pcp/pmapi.h>
#include <pcp/pmda.h>
#include <stdio.h>
#include <stdlib.h>

#define INSTANCES 10000
#define METRIC(item, type) { NULL, { PMDA_PMID(0, item), type, 0, PM_SEM_INSTANT, PMDA_PMUNITS(0, 0, 0, 0, 0, 0) } }

static pmdaInstid names[INSTANCES];
static pmdaIndom indoms[] = { { 0, INSTANCES, names } };
static pmdaMetric metrics[] = {
    METRIC(0, PM_TYPE_U32), METRIC(1, PM_TYPE_U64), METRIC(2, PM_TYPE_DOUBLE), METRIC(3, PM_TYPE_STRING),
};
static char texts[INSTANCES][20];

static int callback(pmdaMetric *metric, unsigned int inst, pmAtomValue *atom)
{
    if (inst >= INSTANCES)
	return PM_ERR_INST;
    switch (pmID_item(metric->m_desc.pmid)) {
    case 0: atom->ul = 7 * inst; break;
    case 1: atom->ull = (unsigned long long)inst << 33; break;
    case 2: atom->d = 1.5 * inst; break;
    case 3: atom->cp = texts[inst]; break;
    default: return PM_ERR_PMID;
    }
    return PMDA_FETCH_STATIC;
}

static void fill(pmdaInterface *agent)
{
    for (int i = 0; i < INSTANCES; i++) {
	char name[32];

	pmsprintf(name, sizeof name, "inst-%010d", i);
	names[i].i_inst = i;
	names[i].i_name = strdup(name);
	pmsprintf(texts[i], sizeof texts[i], "value-%010d", i);
    }
    pmdaSetFetchCallBack(agent, callback);
    pmdaSetFlags(agent, PMDA_EXT_FLAG_HASHED);
    pmdaInit(agent, indoms, 1, metrics, 4);
}

void big_init(pmdaInterface *agent)
{
    pmdaDSO(agent, PMDA_INTERFACE_7, "big", NULL);
    fill(agent);
}

int main(int argc, char **argv)
{
    static pmdaOptions options = { .short_options = "D:d:l:" };
    pmdaInterface agent;

    pmSetProgname(argv[0]);
    pmdaDaemon(&agent, PMDA_INTERFACE_7, argv[0], 400, "big.log", NULL);
    while (pmdaGetOptions(argc, argv, &options, &agent) != EOF)
	;
    pmdaOpenLog(&agent);
    fill(&agent);
    pmdaConnect(&agent);
    pmdaMain(&agent);
    return 0;
}
