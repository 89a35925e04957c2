/* An agent with labels at each level. Its counterpart in Rust is examples/labelled.rs. */
#include <pcp/pmapi.h>
#include <pcp/pmda.h>
#include <stdlib.h>
#include <string.h>

static pmdaInstid instances[] = { { 3, "one instance" }, { 5, "another" } };
static pmdaIndom indoms[] = { { 0, 2, instances } };
static pmdaMetric metrics[] = {
    { NULL, { PMDA_PMID(0, 0), PM_TYPE_U32, PM_INDOM_NULL, PM_SEM_INSTANT, PMDA_PMUNITS(0, 0, 0, 0, 0, 0) } },
    { NULL, { PMDA_PMID(1, 0), PM_TYPE_U32, 0, PM_SEM_INSTANT, PMDA_PMUNITS(0, 0, 0, 0, 0, 0) } },
    { NULL, { PMDA_PMID(1, 1), PM_TYPE_U32, 0, PM_SEM_INSTANT, PMDA_PMUNITS(0, 0, 0, 0, 0, 0) } },
};

static int bare;
static int changed;

static int fetch(pmdaMetric *metric, unsigned int inst, pmAtomValue *atom)
{
    atom->ul = inst;
    return PMDA_FETCH_STATIC;
}

static int store(pmResult *result, pmdaExt *pmda)
{
    changed = 1;
    pmdaExtSetFlags(pmda, PMDA_EXT_LABEL_CHANGE);
    return 0;
}

static int label(int ident, int type, pmLabelSet **labels, pmdaExt *pmda)
{
    if (bare)
        return pmdaLabel(ident, type, labels, pmda);
    switch (type) {
    case PM_LABEL_DOMAIN:
        pmdaAddLabels(labels, "{\"agent\":\"labelled\",\"version\":[1,2]}");
        pmdaAddNotes(labels, "{\"note\":\"by the way\"}");
        break;
    case PM_LABEL_CLUSTER:
        if (pmID_cluster(ident) == 1)
            pmdaAddLabels(labels, "{\"cluster\":\"of one\",\"agent\":\"overruled\"}");
        break;
    case PM_LABEL_ITEM:
        if (pmID_cluster(ident) == 0)
            pmdaAddLabels(labels, changed ? "{\"changed\":true}" : "{\"unit\":\"m\",\"scale\":1.5}");
        break;
    case PM_LABEL_INDOM:
        pmdaAddLabels(labels, "{\"indom\":null}");
        break;
    default:
        break;
    }
    return pmdaLabel(ident, type, labels, pmda);
}

static int label_of_instance(pmInDom indom, unsigned int inst, pmLabelSet **labels)
{
    if (bare || indom == PM_INDOM_NULL || inst != 3)
        return 0;
    return pmdaAddLabels(labels, "{\"n\":%u,\"name\":\"one \\\"instance\\\"\"}", inst);
}

int main(int argc, char **argv)
{
    pmdaInterface dispatch;
    int i, domain = 400;
    pmSetProgname(argv[0]);
    bare = getenv("BARE") != NULL;
    for (i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-d") == 0 && i + 1 < argc)
            domain = atoi(argv[++i]);
    }
    pmdaDaemon(&dispatch, PMDA_INTERFACE_7, pmGetProgname(), domain, "labelled.log", NULL);
    dispatch.version.seven.store = store;
    dispatch.version.seven.label = label;
    pmdaSetFetchCallBack(&dispatch, fetch);
    pmdaSetLabelCallBack(&dispatch, label_of_instance);
    pmdaOpenLog(&dispatch);
    pmdaInit(&dispatch, indoms, 1, metrics, 3);
    pmdaConnect(&dispatch);
    pmdaMain(&dispatch);
    return 0;
}
