/*
 * Prints libpcp's answers to requests: "oracle HOST" reads one request a line and prints one line for each, with words
 * separated by tabs. answers.rs prints the same for the library.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* Functions with microseconds. Since PCP 7 the default is nanoseconds. */
#define PMAPI_VERSION 2
#include <pcp/pmapi.h>

/* Declared in libpcp.h, which is not installed. */
extern int __pmStuffValue(const pmAtomValue *, pmValue *, int);

#define LIMIT 40000
static char *words[LIMIT];
static int ids[LIMIT];

static void bytes(const char *p, int n)
{
    for (int i = 0; i < n; i++) {
        unsigned char c = p[i];
        if (c == '\\' || c < ' ' || c > '~')
            printf("\\x%02x", c);
        else
            putchar(c);
    }
}

static void desc(const pmDesc *d)
{
    unsigned units;
    memcpy(&units, &d->units, 4);
    if (d->pmid == PM_ID_NULL)
        printf(" none");
    else
        printf(" %s/%d/%x/%d/%s", pmIDStr(d->pmid), d->type, d->indom, d->sem, pmUnitsStr(&d->units));
}

static void values(int numpmid, pmValueSet **vset)
{
    for (int i = 0; i < numpmid; i++) {
        pmValueSet *v = vset[i];
        printf(" %s:%d", pmIDStr(v->pmid), v->numval);
        for (int j = 0; j < v->numval; j++) {
            pmValue *value = &v->vlist[j];
            printf(",%x=", value->inst);
            if (v->valfmt == PM_VAL_INSITU) {
                printf("%x", value->value.lval);
                continue;
            }
            pmValueBlock *b = value->value.pval;
            unsigned n = b->vlen - PM_VAL_HDR_SIZE, word;
            unsigned long long two;
            printf("%d;", b->vtype);
            switch (b->vtype) {
            case PM_TYPE_64: case PM_TYPE_U64: case PM_TYPE_DOUBLE:
                memcpy(&two, b->vbuf, 8);
                printf("%llx", two);
                break;
            case PM_TYPE_FLOAT:
                memcpy(&word, b->vbuf, 4);
                printf("%x", word);
                break;
            case PM_TYPE_EVENT: case PM_TYPE_HIGHRES_EVENT:
                printf("%u", n);
                break;
            default:
                bytes(b->vbuf, n);
            }
        }
    }
}

static void labels(int n, pmLabelSet *sets)
{
    for (int i = 0; i < n; i++) {
        pmLabelSet *s = &sets[i];
        printf(" [%x:%d:%.*s", s->inst, s->nlabels, s->nlabels > 0 ? (int)s->jsonlen : 0, s->json ? s->json : "");
        for (int j = 0; j < s->nlabels; j++) {
            pmLabel *l = &s->labels[j];
            printf(",%d/%d/%d/%d/%d", l->name, l->namelen, l->flags, l->value, l->valuelen);
        }
        putchar(']');
    }
}

static int all(int from, int n)
{
    for (int i = from; i < n; i++)
        ids[i - from] = (int)strtoul(words[i], NULL, 0);
    return n - from;
}

static void leaf(const char *name)
{
    printf(" %s", name);
}

static void answer(int n)
{
    const char *what = words[0];
    unsigned id = n > 1 ? (unsigned)strtoul(words[1], NULL, 0) : 0;
    int sts, *list, i;
    char *text, **names;

#define IS(x) (strcmp(what, x) == 0)
    if (IS("names")) {
        pmID *pmids = calloc(n, sizeof(pmID));
        sts = pmLookupName(n - 1, (const char **)&words[1], pmids);
        printf("%d", sts);
        for (i = 0; sts >= 0 && i < n - 1; i++)
            printf(" %x", pmids[i]);
        free(pmids);
    } else if (IS("desc")) {
        pmDesc d;
        sts = pmLookupDesc(id, &d);
        printf("%d", sts);
        if (sts >= 0)
            desc(&d);
    } else if (IS("descs")) {
        int count = all(1, n);
        pmDesc *d = calloc(n, sizeof(pmDesc));
        sts = pmLookupDescs(count, (pmID *)ids, d);
        printf("%d", sts);
        for (i = 0; sts >= 0 && i < count; i++)
            desc(&d[i]);
        free(d);
    } else if (IS("nameid")) {
        sts = pmNameID(id, &text);
        printf("%d %s", sts, sts < 0 ? "" : text);
    } else if (IS("nameall")) {
        sts = pmNameAll(id, &names);
        printf("%d", sts);
        for (i = 0; i < sts; i++)
            printf(" %s", names[i]);
    } else if (IS("children")) {
        sts = pmGetChildrenStatus(n > 1 ? words[1] : "", &names, &list);
        printf("%d", sts);
        for (i = 0; i < sts; i++)
            printf(" %s/%d", names[i], list[i]);
    } else if (IS("traverse")) {
        printf(" %d", pmTraversePMNS(n > 1 ? words[1] : "", leaf));
    } else if (IS("indom")) {
        sts = pmGetInDom(id, &list, &names);
        printf("%d", sts);
        for (i = 0; i < sts; i++) {
            printf(" %x=", list[i]);
            bytes(names[i], strlen(names[i]));
        }
    } else if (IS("lookupin")) {
        printf("%d", pmLookupInDom(id, words[2]));
    } else if (IS("namein")) {
        sts = pmNameInDom(id, (int)strtoul(words[2], NULL, 0), &text);
        printf("%d ", sts);
        if (sts >= 0)
            bytes(text, strlen(text));
    } else if (IS("add") || IS("del")) {
        int count = all(2, n);
        printf("%d", (IS("add") ? pmAddProfile : pmDelProfile)(id, count, count ? ids : NULL));
    } else if (IS("fetch")) {
        pmResult *r;
        int count = all(1, n);
        sts = pmFetch(count, (pmID *)ids, &r);
        printf("%d", sts);
        if (sts >= 0)
            values(r->numpmid, r->vset);
    } else if (IS("highres")) {
        pmHighResResult *r;
        int count = all(1, n);
        sts = pmFetchHighRes(count, (pmID *)ids, &r);
        printf("%d", sts);
        if (sts >= 0)
            values(r->numpmid, r->vset);
    } else if (IS("store")) {
        /* PMID INST TYPE VALUE */
        pmResult *r = calloc(1, sizeof(pmResult));
        pmValueSet v = { .pmid = id, .numval = 1 };
        pmAtomValue atom;
        int type = atoi(words[3]);
        r->numpmid = 1;
        r->vset[0] = &v;
        v.vlist[0].inst = (int)strtoul(words[2], NULL, 0);
        switch (type) {
        case PM_TYPE_32: atom.l = atoi(words[4]); break;
        case PM_TYPE_U32: atom.ul = strtoul(words[4], NULL, 0); break;
        case PM_TYPE_64: atom.ll = atoll(words[4]); break;
        case PM_TYPE_U64: atom.ull = strtoull(words[4], NULL, 0); break;
        case PM_TYPE_FLOAT: atom.f = atof(words[4]); break;
        case PM_TYPE_DOUBLE: atom.d = atof(words[4]); break;
        default: atom.cp = words[4];
        }
        v.valfmt = __pmStuffValue(&atom, &v.vlist[0], type);
        printf("%d", pmStore(r));
    } else if (IS("text") || IS("indomtext")) {
        int level = words[2][0] == 'h' ? PM_TEXT_HELP : PM_TEXT_ONELINE;
        sts = IS("text") ? pmLookupText(id, level, &text) : pmLookupInDomText(id, level, &text);
        printf("%d ", sts);
        if (sts >= 0)
            bytes(text, strlen(text));
    } else {
        pmLabelSet *sets = NULL;
        sts = IS("contextlabels") ? pmGetContextLabels(&sets)
            : IS("domainlabels") ? pmGetDomainLabels(id, &sets)
            : IS("indomlabels") ? pmGetInDomLabels(id, &sets)
            : IS("clusterlabels") ? pmGetClusterLabels(id, &sets)
            : IS("itemlabels") ? pmGetItemLabels(id, &sets)
            : IS("instanceslabels") ? pmGetInstancesLabels(id, &sets)
            : IS("labels") ? pmLookupLabels(id, &sets)
            : -1;
        printf("%d", sts);
        if (sts > 0)
            labels(sts, sets);
    }
    putchar('\n');
    fflush(stdout);
}

int main(int argc, char **argv)
{
    char *line = NULL;
    size_t room = 0;
    int sts = pmNewContext(PM_CONTEXT_HOST, argv[argc - 1]);

    printf("%d\n", sts < 0 ? sts : 0);
    fflush(stdout);
    if (sts < 0)
        return 0;
    while (getline(&line, &room, stdin) > 0) {
        int n = 0;
        line[strcspn(line, "\n")] = '\0';
        for (char *w = strtok(line, "\t"); w != NULL && n < LIMIT; w = strtok(NULL, "\t"))
            words[n++] = w;
        answer(n);
    }
    return 0;
}
