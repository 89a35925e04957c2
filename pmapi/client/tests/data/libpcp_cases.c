/* Prints answers of the installed libpcp to questions on standard input, one a line, with words separated by blanks.
 * Texts and payloads are hexadecimal, "-" for an empty one. Answers are lines of hexadecimal digits.
 * cc -o libpcp_cases libpcp_cases.c -lpcp
 * number BITS | interval TEXT | spec TEXT | flags N | type N | sem N | pmid N | indom N | err CODE | config NAME
 * atom TYPE PAYLOAD                         pmAtomStr of a string or aggregate
 * print FORMAT TYPE WIDTH VTYPE PAYLOAD     FORMAT 0: PAYLOAD is the word, else the block in host order
 * labels FLAGS TEXT [FLAGS TEXT]...         __pmAddLabels one after the other, the last status
 * domain NAME                               __pmGetDomainLabels
 * context | host                            __pmGetContextLabels; __pmGetLabelConfig...
 */
#include <pcp/pmapi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
extern int __pmAddLabels(pmLabelSet **, const char *, int);
extern int __pmGetContextLabels(pmLabelSet **);
extern const char *__pmGetLabelConfigHostName(char *, size_t), *__pmGetLabelConfigDomainName(char *, size_t), *__pmGetLabelConfigMachineID(char *, size_t);
extern int __pmGetDomainLabels(int, const char *, pmLabelSet **);

static unsigned char text[1 << 20];
static int from_hex(const char *hex) {
    int n = 0; unsigned byte;
    if (*hex != '-') for (; hex[0] && hex[1] && sscanf(hex, "%2x", &byte) == 1; hex += 2) text[n++] = byte;
    text[n] = 0;
    return n;
}
static void answer(const char *p, size_t n) { for (; n--; p++) printf("%02x", *p & 0xff); putchar('\n'); }
static void answer_text(const char *p) { answer(p, strlen(p)); }
static void labels(int sts, pmLabelSet *s) {
    char *out; size_t len; FILE *f = open_memstream(&out, &len);
    if (sts < 0 || !s) fprintf(f, "%d", sts);
    else {
        fprintf(f, "%d %.*s", s->nlabels, (int)s->jsonlen, s->json ? s->json : "");
        for (int i = 0; i < s->nlabels; i++) { pmLabel *l = &s->labels[i]; fprintf(f, " %d,%d,%d,%d,%d", l->name, l->namelen, l->flags, l->value, l->valuelen); }
    }
    fclose(f); answer(out, len); free(out);
}
int main(void) {
    static char line[1 << 21]; char b[256];
    while (fgets(line, sizeof line, stdin)) {
        char *save, *what = strtok_r(line, " \n", &save), *arg = strtok_r(NULL, " \n", &save), *err = NULL;
        if (!strcmp(what, "number")) { unsigned long long bits = strtoull(arg, 0, 16); double d; memcpy(&d, &bits, 8); answer_text(pmNumberStr_r(d, b, sizeof b)); }
        else if (!strcmp(what, "interval")) {
            struct timespec t; from_hex(arg);
            if (pmParseHighResInterval((char *)text, &t, &err) < 0) { answer_text(err); free(err); }
            else { snprintf(b, sizeof b, "%lld %ld", (long long)t.tv_sec, (long)t.tv_nsec); answer_text(b); }
        }
        else if (!strcmp(what, "spec")) {
            pmMetricSpec *m; char none[] = "DEFAULT"; from_hex(arg);
            if (pmParseMetricSpec((char *)text, 0, none, &m, &err) < 0) { answer_text(err); free(err); continue; }
            char *out; size_t len; FILE *f = open_memstream(&out, &len);
            fprintf(f, "%d|%s|%s", m->isarch, m->source, m->metric);
            for (int i = 0; i < m->ninst; i++) fprintf(f, "|%s", m->inst[i]);
            fclose(f); answer(out, len); free(out); pmFreeMetricSpec(m);
        }
        else if (!strcmp(what, "flags")) answer_text(pmEventFlagsStr_r((int)strtoul(arg, 0, 10), b, sizeof b));
        else if (!strcmp(what, "type")) answer_text(pmTypeStr_r(atoi(arg), b, sizeof b));
        else if (!strcmp(what, "sem")) answer_text(pmSemStr_r(atoi(arg), b, sizeof b));
        else if (!strcmp(what, "pmid")) answer_text(pmIDStr_r(strtoul(arg, 0, 10), b, sizeof b));
        else if (!strcmp(what, "indom")) answer_text(pmInDomStr_r(strtoul(arg, 0, 10), b, sizeof b));
        else if (!strcmp(what, "err")) answer_text(pmErrStr_r(atoi(arg), b, sizeof b));
        else if (!strcmp(what, "atom")) {
            int type = atoi(arg), n = from_hex(strtok_r(NULL, " \n", &save)); pmAtomValue a; pmValueBlock *block = malloc(PM_VAL_HDR_SIZE + n + 8);
            block->vtype = type; block->vlen = PM_VAL_HDR_SIZE + n; memcpy(block->vbuf, text, n + 1);
            if (type == PM_TYPE_STRING) a.cp = (char *)text; else a.vbp = block;
            answer_text(pmAtomStr_r(&a, type, b, sizeof b));
        }
        else if (!strcmp(what, "config")) { char *v = pmGetOptionalConfig(arg); answer_text(v ? v : "(unset)"); }
        else if (!strcmp(what, "domain")) { pmLabelSet *s = NULL; from_hex(arg); int sts = __pmGetDomainLabels(1, (char *)text, &s); labels(sts, s); if (s) pmFreeLabelSets(s, 1); }
        else if (!strcmp(what, "context")) { pmLabelSet *s = NULL; int sts = __pmGetContextLabels(&s); labels(sts, s); if (s) pmFreeLabelSets(s, 1); }
        else if (!strcmp(what, "host")) {
            char h[256], d[256], m[256], all[1024]; const char *hn = __pmGetLabelConfigHostName(h, sizeof h), *dn = __pmGetLabelConfigDomainName(d, sizeof d), *mn = __pmGetLabelConfigMachineID(m, sizeof m);
            pmLabelSet *s = NULL; snprintf(all, sizeof all, "{\"%s\":\"%s\"}", hn, h); __pmAddLabels(&s, all, 1); snprintf(all, sizeof all, "{\"%s\":\"%s\",\"%s\":\"%s\"}", dn, d, mn, m);
            labels(__pmAddLabels(&s, all, 1), s); pmFreeLabelSets(s, 1);
        }
        else if (!strcmp(what, "labels")) {
            pmLabelSet *s = NULL; int sts = 0;
            for (; arg && sts >= 0; arg = strtok_r(NULL, " \n", &save)) { int flags = atoi(arg); from_hex(strtok_r(NULL, " \n", &save)); sts = __pmAddLabels(&s, (char *)text, flags); }
            labels(sts, s); if (s) pmFreeLabelSets(s, 1);
        }
        else if (!strcmp(what, "print")) {
            int fmt = atoi(arg), type = atoi(strtok_r(NULL, " \n", &save)), width = atoi(strtok_r(NULL, " \n", &save)), vtype = atoi(strtok_r(NULL, " \n", &save));
            pmValue v; v.inst = PM_IN_NULL; char *payload = strtok_r(NULL, " \n", &save); char *out; size_t len;
            if (fmt == 0) v.value.lval = (int)strtoul(payload, 0, 16);
            else {
                int n = from_hex(payload); pmValueBlock *block = malloc(PM_VAL_HDR_SIZE + n + 8);
                block->vtype = vtype; block->vlen = PM_VAL_HDR_SIZE + n; memcpy(block->vbuf, text, n + 1); v.value.pval = block;
            }
            FILE *f = open_memstream(&out, &len); pmPrintValue(f, fmt, type, &v, width); fclose(f); answer(out, len);
        }
        else return 2;
    }
    return 0;
}
