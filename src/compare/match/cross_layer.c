/*
 * cross_layer.c - layer mapping: calls that stand at the same place of the model.
 *
 * A call's place is its scope: the path of the layer it runs in (construct.json), the framework's own function through
 * which the layer reached it (stack.json of the older form), and its name; a cell's or module's place is its path,
 * without the class. A yaml file says where the frameworks name layers differently, by the class of the layer above.
 * The k-th forward call at a place of one side belongs to the k-th at the same place of the other, backward calls and
 * gradients likewise.
 */
#include <stdio.h>
#include "compare/match/cross.h"
#include "core/alloc.h"
#include "core/file.h"
#include "core/path.h"
#include "dump/construct.h"
#include "dump/dump_read.h"

static const char TOP_LAYER[] = "TopLayer";

/* One side's calls and their scopes. */
typedef struct scopes {
    const msp_rows *rows;
    bool mindspore;
    msp_arena arena;
    msp_str *scope;  /* one per call, dotted, without "Cell" or "Module" */
    msp_str *type;   /* its class, or its function's name */
    msp_str *state;  /* "forward", "backward", "parameters_grad" */
    msp_map by_name; /* call name: index */
    msp_construct construct;
    msp_stack *stack;
} scopes;

static msp_status
no_memory(msp_error *err)
{
    return msp_error_set(err, MSP_E_NOMEM, "out of memory");
}

/* ---- dotted names -------------------------------------------------------------------------------------------- */

static void
add_part(msp_buf *b, msp_str part)
{
    if (part.len == 0)
        return;
    if (b->len > 0)
        msp_buf_char(b, '.');
    msp_buf_str(b, part);
}

static bool
is_layer(msp_str name)
{
    return msp_str_starts(name, MSP_STR("Cell.")) || msp_str_starts(name, MSP_STR("Module."));
}

/*
 * "Cell.a.fc.Dense.forward.0" or "Cell.a.fc.Dense.parameters_grad": path "a.fc", class "Dense", state "forward" or
 * "parameters_grad". False when the name has too few parts for that.
 */
static bool
split_layer(msp_str name, msp_str *path, msp_str *type, msp_str *state)
{
    msp_str rest = name, last = msp_str_pop(&rest);

    *state = msp_str_is_digits(last) ? msp_str_pop(&rest) : last;
    *type = msp_str_pop(&rest);
    msp_str_shift(&rest);
    *path = rest;
    return state->len > 0 && type->len > 0 && rest.len > 0;
}

/* ---- stacks -------------------------------------------------------------------------------------------------- */

/* The file of a frame "File path, line n, in f, \n code", and its function. */
static msp_str
frame_file(msp_str frame)
{
    const char *comma = msp_str_find(frame, MSP_STR(","));

    return (msp_str){frame.p, comma != NULL ? (size_t)(comma - frame.p) : frame.len};
}

static msp_str
frame_function(msp_str frame)
{
    const char *in = msp_str_find(frame, MSP_STR(", in ")), *end;
    msp_str rest;

    if (in == NULL)
        return (msp_str){NULL, 0};
    rest = (msp_str){in + 5, (size_t)(frame.p + frame.len - in - 5)};
    end = msp_str_find(rest, MSP_STR(","));
    return (msp_str){rest.p, end != NULL ? (size_t)(end - rest.p) : rest.len};
}

static bool
is_framework_file(msp_str file)
{
    return msp_str_has(file, "site-packages/torch") || msp_str_has(file, "package/torch") ||
           msp_str_has(file, "site-packages/mindspore") || msp_str_has(file, "package/mindspore");
}

/* The layer's own method: what lies outside of it is no part of the way from the layer to the call. */
static bool
ends_layer(msp_str frame, bool mindspore)
{
    return mindspore ? msp_str_has(frame, "construct")
                     : msp_str_has(frame, "in forward,") || msp_str_has(frame, "in backward,");
}

/*
 * The outermost of the framework's functions through which the layer's code reached the call: frames run from the
 * inside out, from behind the collector's own wrapper to the layer's method.
 */
static msp_str
entrance_function(const msp_json *frames, bool mindspore)
{
    size_t n = msp_json_count(frames), first = 0, end = n;
    bool wrapped = false;
    msp_str found = {NULL, 0};

    for (size_t i = 0; i < n && end == n; i++) {
        msp_str f = msp_json_string(msp_json_at(frames, i));

        if (msp_str_has(f, "Template")) {
            wrapped = true;
            first = i + 1;
        } else if (wrapped && ends_layer(f, mindspore)) {
            end = i;
        }
    }
    for (size_t i = first; i < end; i++) {
        msp_str f = msp_json_string(msp_json_at(frames, i));

        if (!is_framework_file(frame_file(f)))
            break;
        found = f;
    }
    if (found.len == 0 || msp_str_has(frame_file(found), "msprobe"))
        return (msp_str){NULL, 0};
    found = frame_function(found);
    return msp_str_has(found, "construct") || msp_str_has(found, "__call__") ? (msp_str){NULL, 0} : found;
}

/* ---- scopes -------------------------------------------------------------------------------------------------- */

static bool
has_no_stack_scope(msp_str name)
{
    return msp_str_starts(name, MSP_STR("Primitive.")) || msp_str_starts(name, MSP_STR("Jit."));
}

static void
function_scope(msp_buf *out, scopes *s, size_t i, msp_str name)
{
    msp_str parent = msp_construct_parent(&s->construct, name), path, type, state, rest = name;

    s->state[i] = msp_str_pop(&rest);
    if (msp_str_is_digits(s->state[i]))
        s->state[i] = msp_str_pop(&rest);
    else
        msp_str_pop(&rest); /* the call's number */
    s->type[i] = msp_str_pop(&rest);
    if (parent.len > 0 && split_layer(parent, &path, &type, &state))
        add_part(out, path);
    if (s->stack != NULL && !has_no_stack_scope(name))
        add_part(out, entrance_function(msp_stack_frames(s->stack, name), s->mindspore));
    add_part(out, s->type[i]);
}

static msp_status
scope_of_call(scopes *s, size_t i, msp_buf *scratch, msp_error *err)
{
    msp_str name = s->rows->apis[i].name, path;
    char *copy;

    msp_buf_clear(scratch);
    if (is_layer(name) && split_layer(name, &path, &s->type[i], &s->state[i]))
        add_part(scratch, path);
    else
        function_scope(scratch, s, i, name);
    copy = scratch->failed ? NULL : msp_arena_text(&s->arena, scratch->p != NULL ? scratch->p : "", scratch->len);
    if (copy == NULL)
        return no_memory(err);
    s->scope[i] = (msp_str){copy, scratch->len};
    return MSP_OK;
}

/* Backward calls have no stack of their own: they stand where their forward call stands. */
static msp_status
inherit_forward(scopes *s, size_t i, msp_buf *scratch, msp_error *err)
{
    msp_str name = s->rows->apis[i].name;
    const char *at = msp_str_find(name, MSP_STR(".backward"));
    msp_map_entry *e;

    if (!msp_str_eq(s->state[i], MSP_STR("backward")) || at == NULL)
        return MSP_OK;
    msp_buf_clear(scratch);
    msp_buf_add(scratch, name.p, (size_t)(at - name.p));
    msp_buf_text(scratch, ".forward");
    msp_buf_add(scratch, at + 9, (size_t)(name.p + name.len - at - 9));
    if (scratch->failed)
        return no_memory(err);
    e = msp_map_get(&s->by_name, msp_buf_view(scratch));
    if (e != NULL)
        s->scope[i] = s->scope[e->value];
    return MSP_OK;
}

/* ---- numbers of pipeline stages ------------------------------------------------------------------------------ */

/* The number that a part ends with ("12", "layer12"); -1 when there is none. */
static int64_t
number_of_part(msp_str part)
{
    unsigned long long n;
    size_t from = part.len;

    while (from > 0 && part.p[from - 1] >= '0' && part.p[from - 1] <= '9')
        from--;
    return msp_str_to_u64((msp_str){part.p + from, part.len - from}, &n) && n < INT32_MAX ? (int64_t)n : -1;
}

/*
 * The part of scope that numbers a layer of a transformer: it follows "<a transformer's scope>.layers". Returns the
 * transformer's entry, NULL when there is no such part.
 */
static msp_map_entry *
numbered_part(const msp_map *transformers, msp_str scope, msp_str *part)
{
    msp_str rest = scope;

    while (rest.len > 0) {
        msp_str before = {scope.p, rest.p > scope.p ? (size_t)(rest.p - scope.p) - 1 : 0};
        msp_str name = msp_str_shift(&rest);
        msp_str next = rest;
        msp_map_entry *e;

        if (!msp_str_eq(name, MSP_STR("layers")) || rest.len == 0)
            continue;
        e = msp_map_get(transformers, before);
        *part = msp_str_shift(&next);
        if (e != NULL && number_of_part(*part) >= 0)
            return e;
    }
    return NULL;
}

static msp_status
renumber_call(scopes *s, size_t i, msp_str part, int64_t number, msp_buf *scratch, msp_error *err)
{
    msp_str scope = s->scope[i];
    char *copy;

    msp_buf_clear(scratch);
    msp_buf_add(scratch, scope.p, (size_t)(part.p - scope.p));
    msp_buf_printf(scratch, "%lld", (long long)number);
    msp_buf_add(scratch, part.p + part.len, (size_t)(scope.p + scope.len - part.p) - part.len);
    copy = scratch->failed ? NULL : msp_arena_text(&s->arena, scratch->p, scratch->len);
    if (copy == NULL)
        return no_memory(err);
    s->scope[i] = (msp_str){copy, scratch->len};
    return MSP_OK;
}

/* One stage of a pipeline counts its layers from 0 in one framework and through the whole model in the other. */
static msp_status
renumber_stages(scopes *s, msp_buf *scratch, msp_error *err)
{
    msp_map lowest = {0}; /* by the scope of a transformer */
    msp_map_entry *e;
    msp_status st = MSP_OK;
    msp_str part;

    for (size_t i = 0; st == MSP_OK && i < s->rows->napis; i++)
        if (msp_str_eq(s->type[i], MSP_STR("ParallelTransformer")) &&
            msp_map_put(&lowest, s->scope[i], INT64_MAX, NULL) == NULL)
            st = no_memory(err);
    for (size_t i = 0; st == MSP_OK && lowest.count > 0 && i < s->rows->napis; i++) {
        e = numbered_part(&lowest, s->scope[i], &part);
        if (e != NULL && number_of_part(part) < e->value)
            e->value = number_of_part(part);
    }
    for (size_t i = 0; st == MSP_OK && lowest.count > 0 && i < s->rows->napis; i++) {
        e = numbered_part(&lowest, s->scope[i], &part);
        if (e != NULL)
            st = renumber_call(s, i, part, number_of_part(part) - e->value, scratch, err);
    }
    msp_map_release(&lowest);
    return st;
}

/* ---- one side ------------------------------------------------------------------------------------------------ */

/*
 * Without a stack the way from the layer to the call is not known, and calls are found by layer and name alone. So are
 * those of dumps whose stacks are in numbered groups, as with 8.3: a wrapper's frame no longer tells where the way
 * begins, and functions inside torch's own layers would all seem to come through "_wrapped_call_impl".
 */
static msp_status
read_stack(scopes *s, const char *json_path, msp_error *err)
{
    char *path = msp_path_beside(json_path, "stack.json");
    msp_status st = MSP_OK;

    if (path == NULL)
        return no_memory(err);
    if (msp_path_kind_of(path) == MSP_PATH_FILE)
        st = msp_stack_open(&s->stack, path, err);
    if (st == MSP_OK && s->stack != NULL && msp_stack_is_grouped(s->stack)) {
        msp_stack_close(s->stack);
        s->stack = NULL;
    }
    msp_free(path);
    return st;
}

static msp_status
scopes_make(scopes *s, const msp_rows *rows, const char *json_path, msp_error *err)
{
    msp_str dir = msp_path_dir(json_path);
    msp_buf scratch = {0};
    msp_status st;

    *s = (scopes){.rows = rows};
    for (size_t i = 0; i < rows->napis && !s->mindspore; i++)
        s->mindspore = msp_str_starts(rows->apis[i].name, MSP_STR("Cell."));
    s->scope = msp_arena_alloc_zero(&s->arena, rows->napis, sizeof(*s->scope));
    s->type = msp_arena_alloc_zero(&s->arena, rows->napis, sizeof(*s->type));
    s->state = msp_arena_alloc_zero(&s->arena, rows->napis, sizeof(*s->state));
    if (s->scope == NULL || s->type == NULL || s->state == NULL)
        return no_memory(err);
    st = msp_construct_open(&s->construct, json_path, err);
    if (st == MSP_OK && s->construct.count == 0)
        st = msp_error_set(err, MSP_E_INVALID,
                           "%.*s/construct.json holds no layers: layer mapping needs dumps of level L0 or mix",
                           (int)dir.len, dir.p);
    if (st == MSP_OK)
        st = read_stack(s, json_path, err);
    for (size_t i = 0; st == MSP_OK && i < rows->napis; i++) {
        if (msp_map_put(&s->by_name, rows->apis[i].name, (int64_t)i, NULL) == NULL)
            st = no_memory(err);
        else
            st = scope_of_call(s, i, &scratch, err);
    }
    for (size_t i = 0; st == MSP_OK && i < rows->napis; i++)
        st = inherit_forward(s, i, &scratch, err);
    if (st == MSP_OK)
        st = renumber_stages(s, &scratch, err);
    msp_buf_release(&scratch);
    return st;
}

static void
scopes_release(scopes *s)
{
    msp_stack_close(s->stack);
    msp_map_release(&s->by_name);
    msp_construct_close(&s->construct);
    msp_arena_release(&s->arena);
}

/* ---- rules --------------------------------------------------------------------------------------------------- */

/* The rules below a class; the top may be called Cell, as older files do. */
static const msp_json *
rules_of(const msp_json *rules, msp_str type)
{
    const msp_json *found = NULL;

    for (size_t i = 0; i < msp_json_count(rules); i++)
        if (msp_str_eq(msp_json_key(rules, i), type))
            found = msp_json_at(rules, i);
    if (found == NULL && msp_str_eq(type, msp_str_of(TOP_LAYER)))
        found = msp_json_get(rules, "Cell");
    return found;
}

/* The longest rule that the rest of a scope begins with, as a whole number of parts; NULL when there is none. */
static const msp_json *
longest_rule(const msp_json *rules, msp_str rest, size_t *len)
{
    const msp_json *best = NULL;

    for (size_t i = 0; i < msp_json_count(rules); i++) {
        msp_str from = msp_json_key(rules, i);
        bool whole = msp_str_starts(rest, from) && (rest.len == from.len || rest.p[from.len] == '.');

        if (whole && from.len > 0 && (best == NULL || from.len > *len)) {
            best = msp_json_at(rules, i);
            *len = from.len;
        }
    }
    return best;
}

/* "query_key_value (Linear)": what follows the name is for people. */
static msp_str
target_of(const msp_json *v)
{
    msp_str s = msp_json_string(v);
    const char *note = msp_str_find(s, MSP_STR("("));

    if (note != NULL)
        s.len = (size_t)(note - s.p);
    while (s.len > 0 && s.p[s.len - 1] == ' ')
        s.len--;
    return s;
}

/* The class of the layer at a place, which its own calls tell; a place without calls has its name for a class. */
static msp_str
type_at(const msp_map *types, const scopes *s, msp_str prefix)
{
    msp_map_entry *e;
    msp_str whole = prefix;

    if (prefix.len == 0)
        return msp_str_of(TOP_LAYER);
    e = msp_map_get(types, prefix);
    return e != NULL ? s->type[e->value] : msp_str_pop(&whole);
}

/* A scope in the other framework's names. */
static void
convert_scope(msp_buf *out, const scopes *s, const msp_map *types, msp_str scope, const msp_json *rules)
{
    msp_str rest = scope;

    while (rest.len > 0) {
        msp_str prefix = {scope.p, rest.p > scope.p ? (size_t)(rest.p - scope.p) - 1 : 0};
        size_t len = 0;
        const msp_json *rule = longest_rule(rules_of(rules, type_at(types, s, prefix)), rest, &len);

        if (rule == NULL) {
            add_part(out, msp_str_shift(&rest));
            continue;
        }
        add_part(out, target_of(rule));
        len += rest.len > len; /* the dot */
        rest.p += len;
        rest.len -= len;
    }
}

/* ---- pairing ------------------------------------------------------------------------------------------------- */

/* "state scope": what calls that may belong together share. */
static msp_status
place_text(msp_str *out, msp_arena *arena, msp_str state, msp_str scope, msp_buf *scratch, msp_error *err)
{
    char *copy;

    msp_buf_clear(scratch);
    msp_buf_str(scratch, state);
    msp_buf_char(scratch, ' ');
    msp_buf_str(scratch, scope);
    copy = scratch->failed ? NULL : msp_arena_text(arena, scratch->p, scratch->len);
    if (copy == NULL)
        return no_memory(err);
    *out = (msp_str){copy, scratch->len};
    return MSP_OK;
}

/* The bench's calls, threaded by place: first[place] and next[call]. */
static msp_status
thread_bench(msp_map *first, int64_t *next, scopes *b, msp_buf *scratch, msp_error *err)
{
    msp_status st = MSP_OK;

    for (size_t i = b->rows->napis; st == MSP_OK && i-- > 0;) {
        msp_str place;
        msp_map_entry *e;
        bool added;

        st = place_text(&place, &b->arena, b->state[i], b->scope[i], scratch, err);
        if (st != MSP_OK)
            break;
        e = msp_map_put(first, place, (int64_t)i, &added);
        if (e == NULL)
            return no_memory(err);
        next[i] = added ? MSP_CROSS_NONE : e->value;
        e->value = (int64_t)i;
    }
    return st;
}

/*
 * The bench's call for the NPU's next call at own, a place that the rules turn into place. Where they turn two places
 * of the NPU into one of the bench, each begins with the first call there.
 */
static msp_status
take_partner(int64_t *partner, msp_map *cursors, msp_str own, const msp_map *first, const int64_t *next, msp_str place,
             msp_error *err)
{
    bool added;
    msp_map_entry *cursor = msp_map_put(cursors, own, 0, &added), *e;

    if (cursor == NULL)
        return no_memory(err);
    if (added) {
        e = msp_map_get(first, place);
        cursor->value = e != NULL ? e->value : MSP_CROSS_NONE;
    }
    *partner = cursor->value;
    if (*partner != MSP_CROSS_NONE)
        cursor->value = next[*partner];
    return MSP_OK;
}

static msp_status
pair_calls(int64_t *partner, scopes *n, const msp_map *first, const int64_t *next, const msp_json *rules,
           msp_buf *scratch, msp_error *err)
{
    msp_map types = {0}, cursors = {0};
    msp_buf converted = {0};
    msp_status st = MSP_OK;

    for (size_t i = 0; st == MSP_OK && i < n->rows->napis; i++) {
        msp_map_entry *e = msp_map_put(&types, n->scope[i], 0, NULL);

        if (e == NULL)
            st = no_memory(err);
        else
            e->value = (int64_t)i;
    }
    for (size_t i = 0; st == MSP_OK && i < n->rows->napis; i++) {
        msp_str place, own;

        msp_buf_clear(&converted);
        convert_scope(&converted, n, &types, n->scope[i], rules);
        st = converted.failed ? no_memory(err)
                              : place_text(&place, &n->arena, n->state[i], msp_buf_view(&converted), scratch, err);
        if (st == MSP_OK)
            st = place_text(&own, &n->arena, n->state[i], n->scope[i], scratch, err);
        if (st == MSP_OK)
            st = take_partner(&partner[i], &cursors, own, first, next, place, err);
    }
    msp_buf_release(&converted);
    msp_map_release(&cursors);
    msp_map_release(&types);
    return st;
}

msp_status
msp_cross_layers(int64_t *partner, const msp_cross_sides *sides, const msp_json *rules, msp_error *err)
{
    scopes n, b = {0};
    msp_map first = {0};
    msp_buf scratch = {0};
    int64_t *next = NULL;
    msp_status st = scopes_make(&n, sides->npu, sides->npu_path, err);

    if (st == MSP_OK)
        st = scopes_make(&b, sides->bench, sides->bench_path, err);
    if (st == MSP_OK) {
        next = msp_alloc(sides->bench->napis, sizeof(*next));
        st = next == NULL ? no_memory(err) : thread_bench(&first, next, &b, &scratch, err);
    }
    if (st == MSP_OK)
        st = pair_calls(partner, &n, &first, next, rules, &scratch, err);
    msp_free(next);
    msp_buf_release(&scratch);
    msp_map_release(&first);
    scopes_release(&b);
    scopes_release(&n);
    return st;
}
