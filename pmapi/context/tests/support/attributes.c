/*
 * An agent that asks for client attributes. Its only metric has what it was sent for the client of the request: number,
 * value and length of each attribute.
 */
#include <pcp/pmapi.h>
#include <pcp/pmda.h>
#include <stdio.h>
#include <string.h>

static char seen[16][512];

static pmdaMetric metrics[] = {
    { NULL, { PMDA_PMID(0, 0), PM_TYPE_STRING, PM_INDOM_NULL, PM_SEM_INSTANT, PMDA_PMUNITS(0, 0, 0, 0, 0, 0) } },
};

static char *of(int client)
{
    return seen[(unsigned)client % 16];
}

static int attribute(int client, int key, char *value, int length, pmdaExt *pmda)
{
    size_t used = strlen(of(client));
    snprintf(of(client) + used, 512 - used, "%d=%s/%d ", key, value, length);
    return 0;
}

static int fetched(pmdaMetric *metric, unsigned int inst, pmAtomValue *value)
{
    value->cp = of(pmdaGetContext());
    return PMDA_FETCH_STATIC;
}

void attributes_init(pmdaInterface *pmda)
{
    pmdaDSO(pmda, PMDA_INTERFACE_6, "attributes", NULL);
    if (pmda->status != 0)
	return;
    pmdaSetCommFlags(pmda, PMDA_FLAG_AUTHORIZE);
    pmda->version.six.attribute = attribute;
    pmdaSetFetchCallBack(pmda, fetched);
    pmdaInit(pmda, NULL, 0, metrics, 1);
}
