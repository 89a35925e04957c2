/* A client of libpcp: prints the changes that pmFetch(3) reports, after each of a few stores. */
#include <pcp/pmapi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pmID metric(const char *name)
{
    pmID pmid = PM_ID_NULL;
    int sts = pmLookupName(1, &name, &pmid);
    if (sts < 0)
        printf("%s: %s\n", name, pmErrStr(sts));
    return pmid;
}

static void fetch(const char *when)
{
    pmID pmid = metric("zoo.level");
    pmResult *result;
    int sts = pmFetch(1, &pmid, &result);
    if (sts < 0) {
        printf("%s: %s\n", when, pmErrStr(sts));
        return;
    }
    printf("%s:%s%s\n", when, sts & PMCD_NAMES_CHANGE ? " names" : "", sts & PMCD_LABEL_CHANGE ? " labels" : "");
    pmFreeResult(result);
}

static void store(const char *name, int type, pmAtomValue atom)
{
    pmValueSet *set = calloc(1, sizeof(*set));
    pmResult *result = calloc(1, sizeof(*result));
    int sts;
    result->numpmid = 1;
    result->vset[0] = set;
    set->pmid = metric(name);
    set->numval = 1;
    set->vlist[0].inst = PM_IN_NULL;
    sts = __pmStuffValue(&atom, &set->vlist[0], type);
    set->valfmt = sts;
    sts = pmStore(result);
    if (sts < 0)
        printf("store %s: %s\n", name, pmErrStr(sts));
    pmFreeResult(result);
}

int main(int argc, char **argv)
{
    pmAtomValue atom;
    int sts = pmNewContext(PM_CONTEXT_HOST, argv[argc - 1]);
    if (sts < 0) {
        printf("%s: %s\n", argv[argc - 1], pmErrStr(sts));
        return 1;
    }
    fetch("start");
    atom.ul = 5;
    store("zoo.herd", PM_TYPE_U32, atom);
    fetch("five more");
    fetch("again");
    metric("zoo.dyn.herd.a4.n4");
    atom.cp = "{\"new\":1}";
    store("zoo.guest_labels", PM_TYPE_STRING, atom);
    fetch("labels");
    atom.ul = 0;
    store("zoo.herd", PM_TYPE_U32, atom);
    fetch("none");
    metric("zoo.dyn.herd.a4.n4");
    fetch("end");
    return 0;
}
