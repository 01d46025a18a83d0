/*
 * options.c - argv into values, by the rules of Python's argparse, which the originals use: one dash before several
 * letters (-hl), long options abbreviated as long as they stay unambiguous, "--name=value" and "-o value", options and
 * operands in any order, the last of repeated options wins.
 *
 * Beyond them: underscores and dashes in long names are the same; -f, which means the framework before the command's
 * name and fuzzy matching after it, means the framework there too when a framework's name follows.
 */
#include <stdlib.h>
#include <string.h>
#include "cli.h"

typedef struct parser {
    msp_args *args;
    const msp_line *line;
    msp_opt_table tables[2]; /* the command's own options first: they hide global ones of the same name */
    size_t ntables;
    size_t at; /* next word */
    bool no_more_options;
} parser;

/* ---- names --------------------------------------------------------------------------------------------------- */

static char
fold_underscore(char c)
{
    return c == '_' ? '-' : c;
}

/* True when the first len bytes of word, dashes and underscores being equal, are those of name. */
static bool
starts_like(const char *name, const char *word, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (name[i] == '\0' || fold_underscore(name[i]) != fold_underscore(word[i]))
            return false;
    return true;
}

static bool
same_name(const char *name, const char *word, size_t len)
{
    return name != NULL && starts_like(name, word, len) && name[len] == '\0';
}

static const msp_opt *
option_at(const parser *p, size_t i)
{
    for (size_t t = 0; t < p->ntables; t++) {
        if (i < p->tables[t].count)
            return &p->tables[t].opts[i];
        i -= p->tables[t].count;
    }
    return NULL;
}

/* Before the command's name -f is the framework; the tables are then asked from the global end. */
static bool
is_before_command(const parser *p)
{
    return p->at <= p->line->before;
}

static bool
hidden_here(const parser *p, const msp_opt *o)
{
    return o->id == MSP_OPT_FUZZY && is_before_command(p);
}

static const msp_opt *
find_exact(const parser *p, const char *word, size_t len)
{
    const msp_opt *o;

    for (size_t i = 0; (o = option_at(p, i)) != NULL; i++) {
        if (o->brief != NULL && strlen(o->brief) == len && memcmp(o->brief, word, len) == 0 && !hidden_here(p, o))
            return o;
        if (same_name(o->name, word, len) || same_name(o->alias, word, len))
            return o;
    }
    return NULL;
}

/* Append ", name" to a list of candidates that an error shows. */
static void
list_add(char *list, size_t size, const char *name)
{
    size_t len = strlen(list);

    snprintf(list + len, size - len, "%s%s", len > 0 ? ", " : "", name);
}

/*
 * The option that the abbreviation fits. When it fits several, one that the originals have wins if it is the only such
 * one: scripts written for them go on working although there are more options now.
 */
static msp_status
find_abbreviated(const msp_opt **out, const parser *p, const char *word, size_t len, msp_error *err)
{
    const msp_opt *hit = NULL, *hit_original = NULL, *o;
    size_t hits = 0, originals = 0;
    char list[256] = "";

    for (size_t i = 0; (o = option_at(p, i)) != NULL; i++) {
        bool single = word[1] != '-';
        const char *name = single ? o->brief : o->name;

        if (name == NULL || len < 3)
            continue;
        if (!starts_like(name, word, len) && (single || o->alias == NULL || !starts_like(o->alias, word, len)))
            continue;
        hit = o;
        hits++;
        list_add(list, sizeof(list), name);
        if (o->original) {
            hit_original = o;
            originals++;
        }
    }
    *out = hits == 1 ? hit : originals == 1 ? hit_original : NULL;
    if (hits > 1 && *out == NULL)
        return msp_error_set(err, MSP_E_INVALID, "option '%.*s' is ambiguous: it could be %s", (int)len, word, list);
    return MSP_OK;
}

static const char *
nearest_option(const parser *p, const char *word)
{
    msp_nearest n = {.word = word};
    const msp_opt *o;
    char twice[64];

    for (size_t i = 0; (o = option_at(p, i)) != NULL; i++) {
        msp_nearest_offer(&n, o->name);
        if (o->brief != NULL && strlen(word) > 2)
            msp_nearest_offer(&n, o->brief);
    }
    /* "-output" is "--output_path" with a dash missing */
    if (n.best == NULL && word[0] == '-' && word[1] != '-' && strlen(word) < sizeof(twice) - 1) {
        snprintf(twice, sizeof(twice), "-%s", word);
        n.word = twice;
        for (size_t i = 0; (o = option_at(p, i)) != NULL; i++)
            msp_nearest_offer(&n, o->name);
    }
    return n.best;
}

static msp_status
unknown_option(const parser *p, const char *word, size_t len, msp_error *err)
{
    char text[128];
    const char *near;

    snprintf(text, sizeof(text), "%.*s", (int)(len < 100 ? len : 100), word);
    near = nearest_option(p, text);
    if (near != NULL)
        return msp_error_set(err, MSP_E_INVALID, "unknown option '%s'; did you mean '%s'?", text, near);
    return msp_error_set(err, MSP_E_INVALID, "unknown option '%s'", text);
}

/* ---- values -------------------------------------------------------------------------------------------------- */

bool
msp_choice_has(const char *choices, const char *word, size_t len)
{
    for (const char *c = choices; c != NULL && *c != '\0';) {
        size_t n = strcspn(c, ",");

        if (n == len && memcmp(c, word, n) == 0)
            return true;
        c += n + (c[n] == ',');
    }
    return false;
}

static msp_status
check_choices(const msp_opt *o, const char *value, msp_error *err)
{
    const char *v = value;

    do {
        size_t n = o->many ? strcspn(v, ",") : strlen(v);

        if (!msp_choice_has(o->choices, v, n))
            return msp_error_set(err, MSP_E_INVALID, "'%.*s' is no value of %s; choose %s%s", (int)(n < 100 ? n : 100),
                                 v, o->name, o->many ? "one or more of " : "", o->choices);
        v += n + (v[n] == ',');
        if (v[0] == '\0' && v[-1] == ',')
            return msp_error_set(err, MSP_E_INVALID, "the value of %s ends with a comma", o->name);
    } while (*v != '\0');
    return MSP_OK;
}

static msp_status
store_option(parser *p, const msp_opt *o, const char *value, msp_error *err)
{
    if (value != msp_opt_bare && value[0] == '\0')
        return msp_error_set(err, MSP_E_INVALID, "option '%s' has an empty value", o->name);
    if (o->choices != NULL) {
        msp_status st = check_choices(o, value, err);

        if (st != MSP_OK)
            return st;
    }
    p->args->value[o->id] = value;
    return MSP_OK;
}

/* A word can be a value unless it looks like an option; "-" alone, and everything after "--", can. */
static bool
next_is_value(const parser *p)
{
    const char *w = p->at < p->line->nwords ? p->line->words[p->at] : NULL;

    /* the command's name stood here: what follows it is no value of what came before */
    if (w == NULL || p->at == p->line->before)
        return false;
    return w[0] != '-' || w[1] == '\0';
}

static const msp_opt *
framework_option(void)
{
    return &msp_opts_global.opts[0];
}

/* -f pytorch after the command's name. */
static bool
is_framework(const char *word)
{
    return msp_choice_has(framework_option()->choices, word, strlen(word));
}

static msp_status
take_option(parser *p, const msp_opt *o, const char *attached, msp_error *err)
{
    if (o->id == MSP_OPT_FUZZY && attached != NULL && is_framework(attached))
        return store_option(p, framework_option(), attached, err);
    if (o->kind == MSP_OPT_FLAG) {
        if (attached != NULL)
            return msp_error_set(err, MSP_E_INVALID, "option '%s' takes no value, but has '%s'", o->name, attached);
        return store_option(p, o, msp_opt_bare, err);
    }
    if (attached != NULL)
        return store_option(p, o, attached, err);
    if (next_is_value(p))
        return store_option(p, o, p->line->words[p->at++], err);
    if (o->kind == MSP_OPT_VALUE)
        return msp_error_set(err, MSP_E_INVALID, "option '%s' needs a value: %s %s", o->name,
                             o->brief != NULL ? o->brief : o->name, o->choices != NULL ? o->choices : o->metavar);
    return store_option(p, o, msp_opt_bare, err);
}

/* ---- words --------------------------------------------------------------------------------------------------- */

/*
 * One dash and one letter with more after it: letters of flags ("-sc"), the last of which may take the rest as its
 * value ("-oout"). False when it is not that, and then nothing was stored.
 */
static bool
is_cluster(const parser *p, const char *word)
{
    char brief[3] = {'-', 0, 0};

    for (const char *c = word + 1; *c != '\0'; c++) {
        const msp_opt *o;

        brief[1] = *c;
        o = find_exact(p, brief, 2);
        if (o == NULL)
            return false;
        if (o->kind != MSP_OPT_FLAG)
            return true;
        if (o->id == MSP_OPT_FUZZY && is_framework(c + 1))
            return true;
    }
    return true;
}

static msp_status
take_cluster(parser *p, const char *word, msp_error *err)
{
    char brief[3] = {'-', 0, 0};

    for (const char *c = word + 1; *c != '\0'; c++) {
        const msp_opt *o;
        bool takes_rest;
        msp_status st;

        brief[1] = *c;
        o = find_exact(p, brief, 2);
        takes_rest = c[1] != '\0' && (o->kind != MSP_OPT_FLAG || (o->id == MSP_OPT_FUZZY && is_framework(c + 1)));
        st = take_option(p, o, takes_rest ? c + 1 : NULL, err);
        if (st != MSP_OK || takes_rest)
            return st;
    }
    return MSP_OK;
}

/* "-output_path out" would read as -o with the value "utput_path": it is a dash forgotten. */
static bool
is_long_with_one_dash(const parser *p, const char *word, size_t len)
{
    const msp_opt *o;

    if (len < 4)
        return false;
    for (size_t i = 0; (o = option_at(p, i)) != NULL; i++)
        if (starts_like(o->name + 2, word + 1, len - 1) || (o->alias && starts_like(o->alias + 2, word + 1, len - 1)))
            return true;
    return false;
}

static msp_status
parse_option(parser *p, const char *word, msp_error *err)
{
    const char *equals = strchr(word, '=');
    size_t len = equals != NULL ? (size_t)(equals - word) : strlen(word);
    const char *attached = equals != NULL ? equals + 1 : NULL;
    const msp_opt *o = find_exact(p, word, len);
    msp_status st;

    if (o == NULL && word[1] != '-' && equals == NULL && !is_long_with_one_dash(p, word, len) && is_cluster(p, word))
        return take_cluster(p, word, err);
    if (o == NULL) {
        st = find_abbreviated(&o, p, word, len, err);
        if (st != MSP_OK)
            return st;
    }
    if (o == NULL)
        return unknown_option(p, word, len, err);
    if (o->id == MSP_OPT_FUZZY && word[1] != '-' && attached == NULL && next_is_value(p) &&
        is_framework(p->line->words[p->at]))
        attached = p->line->words[p->at++];
    return take_option(p, o, attached, err);
}

msp_status
msp_args_parse(msp_args *args, const msp_line *line, const char **operands, msp_error *err)
{
    parser p = {.args = args, .line = line};
    msp_status st = MSP_OK;

    *args = (msp_args){.command = line->command, .operands = operands};
    if (line->command != NULL && line->command->options != NULL)
        p.tables[p.ntables++] = *line->command->options;
    p.tables[p.ntables++] = msp_opts_global;
    while (st == MSP_OK && p.at < line->nwords) {
        const char *word = line->words[p.at++];

        if (!p.no_more_options && strcmp(word, "--") == 0)
            p.no_more_options = true;
        else if (!p.no_more_options && word[0] == '-' && word[1] != '\0')
            st = parse_option(&p, word, err);
        else
            operands[args->noperands++] = word;
    }
    return st;
}

/* ---- the command's place ------------------------------------------------------------------------------------- */

/* Does this word, standing before the command, take the next one as its value? Any command's option may stand there. */
static bool
swallows_next(const char *word, const char *next)
{
    const msp_opt_table *tables[] = {&msp_opts_global, &msp_opts_compare, &msp_opts_merge};

    for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++) {
        for (size_t i = 0; i < tables[t]->count; i++) {
            const msp_opt *o = &tables[t]->opts[i];

            if ((o->brief == NULL || strcmp(o->brief, word) != 0) && !same_name(o->name, word, strlen(word)))
                continue;
            /* "-f compare" forgot the framework's name, it does not name one */
            if (o->kind == MSP_OPT_MAYBE || o->id == MSP_OPT_FRAMEWORK)
                return msp_command_find(next) == NULL;
            return o->kind == MSP_OPT_VALUE;
        }
    }
    return false;
}

void
msp_line_split(msp_line *line, int argc, char **argv, char **words)
{
    int at = 1;

    *line = (msp_line){.words = words};
    while (at < argc && argv[at][0] == '-' && strcmp(argv[at], "--") != 0) {
        bool two = at + 1 < argc && argv[at + 1][0] != '-' && swallows_next(argv[at], argv[at + 1]);

        words[line->nwords++] = argv[at++];
        if (two)
            words[line->nwords++] = argv[at++];
    }
    line->before = line->nwords;
    if (at < argc && strcmp(argv[at], "--") == 0)
        at++;
    if (at < argc) {
        line->command_word = argv[at];
        line->command = msp_command_find(argv[at++]);
    }
    while (at < argc)
        words[line->nwords++] = argv[at++];
}

/* ---- reading values ------------------------------------------------------------------------------------------ */

bool
msp_args_has(const msp_args *args, msp_opt_id id)
{
    return args->value[id] != NULL;
}

const char *
msp_args_get(const msp_args *args, msp_opt_id id, const char *fallback)
{
    const char *v = args->value[id];

    return v == NULL || v == msp_opt_bare ? fallback : v;
}

msp_status
msp_args_number(int *out, const msp_args *args, msp_opt_id id, const char *name, int max, msp_error *err)
{
    const char *v = msp_args_get(args, id, NULL);
    char *end;
    long n;

    *out = 0;
    if (v == NULL)
        return MSP_OK;
    n = strtol(v, &end, 10);
    if (*end != '\0' || v[0] < '0' || v[0] > '9' || n < 1 || n > max)
        return msp_error_set(err, MSP_E_INVALID, "'%.40s' is no value of %s; choose a number from 1 to %d", v, name,
                             max);
    *out = (int)n;
    return MSP_OK;
}

msp_status
msp_args_numbers(int64_t **out, size_t *n, const msp_args *args, msp_opt_id id, const char *name, msp_error *err)
{
    const char *v = msp_args_get(args, id, NULL);
    char *end;

    *out = NULL;
    *n = 0;
    if (v == NULL)
        return MSP_OK;
    *out = malloc((strlen(v) / 2 + 1) * sizeof(**out)); /* a digit and a comma each */
    if (*out == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    for (const char *at = v;; at = end + 1) {
        long number = strtol(at, &end, 10);

        if (at[0] < '0' || at[0] > '9' || (*end != ',' && *end != '\0') || number > INT32_MAX) {
            free(*out);
            *out = NULL;
            return msp_error_set(err, MSP_E_INVALID, "'%.40s' is no value of %s; give numbers such as 0,1", v, name);
        }
        (*out)[(*n)++] = number;
        if (*end == '\0')
            return MSP_OK;
    }
}
