/* Reads operations of pmdaCache(3), one a line, and prints the result of each. */
#include <pcp/pmapi.h>
#include <pcp/pmda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int unhex(char *text, char *key)
{
    int n = 0;
    unsigned int byte;
    for (; sscanf(text, "%2x", &byte) == 1 && text[0] && text[1]; text += 2)
        key[n++] = (char)byte;
    return n;
}

static void found(int sts, const char *name, int inst)
{
    if (sts < 0)
        printf("%d\n", sts);
    else
        printf("%s %d %s\n", sts == PMDA_CACHE_ACTIVE ? "active" : "hidden", inst, name);
}

int main(int argc, char **argv)
{
    pmInDom indom = pmInDom_build(400, 5);
    static char line[4096], key[2048];
    pmSetProgname("caches");
    while (fgets(line, sizeof(line), stdin)) {
        char *word = strtok(line, " \n"), *rest = strtok(NULL, "\n"), *name = NULL;
        int inst = -1, n, sts;
        if (strcmp(word, "add") == 0)
            printf("%d\n", pmdaCacheStore(indom, PMDA_CACHE_ADD, rest, NULL));
        else if (strcmp(word, "key") == 0) {
            char *hex = strtok(rest, " ");
            name = strtok(NULL, "\n");
            n = unhex(hex, key);
            printf("%d\n", pmdaCacheStoreKey(indom, PMDA_CACHE_ADD, name, n, key, NULL));
        }
        else if (strcmp(word, "namekey") == 0)
            printf("%d\n", pmdaCacheStoreKey(indom, PMDA_CACHE_ADD, rest, 0, NULL, NULL));
        else if (strcmp(word, "hide") == 0)
            pmdaCacheStore(indom, PMDA_CACHE_HIDE, rest, NULL);
        else if (strcmp(word, "cull") == 0) {
            pmdaCacheStore(indom, PMDA_CACHE_CULL, rest, NULL);
            pmdaCacheOp(indom, PMDA_CACHE_REORG);
        }
        else if (strcmp(word, "named") == 0) {
            sts = pmdaCacheLookupName(indom, rest, &inst, NULL);
            if (sts >= 0)
                pmdaCacheLookup(indom, inst, &name, NULL);
            found(sts, name, inst);
        }
        else if (strcmp(word, "keyed") == 0) {
            n = unhex(rest, key);
            sts = pmdaCacheLookupKey(indom, NULL, n, key, &name, &inst, NULL);
            found(sts, name, inst);
        }
        else if (strcmp(word, "id") == 0) {
            inst = atoi(rest);
            sts = pmdaCacheLookup(indom, inst, &name, NULL);
            found(sts, name, inst);
        }
        else if (strcmp(word, "walk") == 0) {
            pmdaCacheOp(indom, PMDA_CACHE_WALK_REWIND);
            while ((inst = pmdaCacheOp(indom, PMDA_CACHE_WALK_NEXT)) != -1)
                printf("%d ", inst);
            printf("\n");
        }
        else if (strcmp(word, "sizes") == 0)
            printf("%d %d\n", pmdaCacheOp(indom, PMDA_CACHE_SIZE_ACTIVE), pmdaCacheOp(indom, PMDA_CACHE_SIZE_INACTIVE));
        else if (strcmp(word, "max") == 0)
            printf("%d\n", pmdaCacheResize(indom, atoi(rest)));
        else if (strcmp(word, "purge") == 0)
            printf("%d\n", pmdaCachePurge(indom, atoi(rest)));
        else if (strcmp(word, "inactive") == 0)
            pmdaCacheOp(indom, PMDA_CACHE_INACTIVE);
        else if (strcmp(word, "reuse") == 0)
            pmdaCacheOp(indom, PMDA_CACHE_REUSE);
        else if (strcmp(word, "load") == 0)
            pmdaCacheOp(indom, PMDA_CACHE_LOAD);
        else if (strcmp(word, "save") == 0)
            pmdaCacheOp(indom, PMDA_CACHE_SAVE);
        else if (strcmp(word, "sync") == 0)
            pmdaCacheOp(indom, PMDA_CACHE_SYNC);
        else
            printf("what is %s?\n", word);
    }
    return 0;
}
