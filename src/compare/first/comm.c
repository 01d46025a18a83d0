/* comm.c - see comm.h. */
#include "compare/first/comm.h"

#include <stdlib.h>
#include "core/alloc.h"
#include "core/vec.h"

/* ---- names --------------------------------------------------------------------------------------------------- */

/* The names that the originals list are all covered by these parts ("isend" holds "send", and so on). */
bool
msp_comm_is(msp_str name)
{
    static const msp_str prefixes[] = {{"Distributed", 11}, {"MintDistributed", 15}, {"communication.comm_func", 23}};
    static const msp_str parts[] = {{"send", 4},   {"recv", 4},    {"broadcast", 9},  {"reduce", 6},
                                    {"gather", 6}, {"scatter", 7}, {"all_to_all", 10}};
    bool ours = false;

    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        ours = ours || msp_str_starts(name, prefixes[i]);
    for (size_t i = 0; ours && i < sizeof(parts) / sizeof(parts[0]); i++)
        if (msp_str_find(name, parts[i]) != NULL)
            return true;
    return false;
}

msp_str
msp_comm_part(msp_str name, size_t n)
{
    const char *end = name.p + name.len, *p = end;

    for (;;) {
        while (p > name.p && p[-1] != '.')
            p--;
        if (n == 0)
            return (msp_str){p, (size_t)(end - p)};
        if (p == name.p)
            return (msp_str){NULL, 0};
        n--;
        end = --p;
    }
}

/* ---- partners of a communication call ------------------------------------------------------------------------ */

static msp_status
add_number(int64_t **list, size_t *n, size_t *cap, int64_t v, msp_error *err)
{
    if (!msp_vec_grow((void **)list, cap, *n + 1, sizeof(**list)))
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    (*list)[(*n)++] = v;
    return MSP_OK;
}

/* "[0, 1, 2]", or the older "tp-0-1-2": every number, but for digits that belong to the word in front. */
static msp_status
add_group(msp_comm_peers *p, msp_str text, msp_error *err)
{
    const char *at = text.p, *end = text.p + text.len;

    if (text.len == 0 || *at != '[') {
        at = msp_str_find(text, MSP_STR("-"));
        if (at == NULL)
            return MSP_OK;
    }
    while (at < end) {
        int64_t v = 0;
        msp_status st;

        while (at < end && (*at < '0' || *at > '9'))
            at++;
        if (at == end)
            break;
        for (; at < end && *at >= '0' && *at <= '9'; at++)
            v = v < INT32_MAX ? v * 10 + (*at - '0') : v;
        st = add_number(&p->group, &p->ngroup, &p->group_cap, v, err);
        if (st != MSP_OK)
            return st;
    }
    return MSP_OK;
}

static bool
text_to_rank(msp_str s, int64_t *out)
{
    unsigned long long v;

    if (!msp_str_to_u64(s, &v) || v > INT32_MAX)
        return false;
    *out = (int64_t)v;
    return true;
}

static bool
arg_to_rank(const msp_comm_arg *a, int64_t *out)
{
    if (!a->is_number)
        return text_to_rank(a->text, out);
    *out = a->number;
    return a->number >= 0 && a->number <= INT32_MAX;
}

/* The argument that an unnamed position stands for: dist.send(t, 1), dist.gather(t, list, 0). */
static msp_str
positional_name(msp_str api, msp_str position)
{
    static const struct {
        msp_str api, position, name;
    } all[] = {
        {{"send", 4}, {"1", 1}, {"dst", 3}},
        {{"isend", 5}, {"1", 1}, {"dst", 3}},
        {{"recv", 4}, {"1", 1}, {"src", 3}},
        {{"irecv", 5}, {"1", 1}, {"src", 3}},
        {{"broadcast", 9}, {"1", 1}, {"src", 3}},
        {{"reduce", 6}, {"1", 1}, {"dst", 3}},
        {{"gather", 6}, {"2", 1}, {"dst", 3}},
        {{"scatter", 7}, {"2", 1}, {"src", 3}},
        {{"send_object_list", 16}, {"1", 1}, {"dst", 3}},
        {{"recv_object_list", 16}, {"1", 1}, {"src", 3}},
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (msp_str_eq(all[i].api, api) && msp_str_eq(all[i].position, position))
            return all[i].name;
    return position;
}

msp_status
msp_comm_note(msp_comm_peers *p, const msp_comm_arg *arg, msp_error *err)
{
    msp_str last = msp_comm_part(arg->name, 0);
    bool src, dst, in_group;
    int64_t v;

    if (arg->p2p_peer.len > 0 && text_to_rank(arg->p2p_peer, &v))
        return add_number(&p->p2p, &p->np2p, &p->p2p_cap, v, err);
    if (msp_str_eq(last, MSP_STR("group")) && !arg->is_number)
        return add_group(p, arg->text, err);
    /* a position's checksum says nothing about its value */
    if (!arg->is_checksum)
        last = positional_name(msp_comm_part(arg->call, 2), last);
    in_group = msp_str_starts(last, MSP_STR("group_"));
    src = msp_str_eq(last, MSP_STR("src")) || msp_str_eq(last, MSP_STR("group_src"));
    dst = msp_str_eq(last, MSP_STR("dst")) || msp_str_eq(last, MSP_STR("group_dst"));
    if ((src || dst) && arg_to_rank(arg, &v)) {
        p->has_src = src;
        p->has_dst = dst;
        p->in_group = in_group;
        p->value = v;
    }
    return MSP_OK;
}

void
msp_comm_peers_reset(msp_comm_peers *p)
{
    p->has_src = p->has_dst = p->in_group = false;
    p->ngroup = p->np2p = 0;
}

void
msp_comm_peers_release(msp_comm_peers *p)
{
    msp_free(p->group);
    msp_free(p->p2p);
    *p = (msp_comm_peers){0};
}

static int
by_number(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

uint64_t
msp_comm_hash(const int64_t *ranks, size_t n)
{
    uint64_t h = 14695981039346656037u;

    for (size_t i = 0; i < n; i++)
        h = (h ^ (uint64_t)ranks[i]) * 1099511628211u;
    return h;
}

/* The list that out shall have, sorted: one that an earlier call has already, or a new one. */
static msp_status
share_peers(msp_comm_call *out, msp_comm_peers *p, const int64_t *list, size_t n, msp_arena *arena, msp_error *err)
{
    int64_t *copy;

    for (size_t i = 0; i < MSP_COMM_KNOWN; i++)
        if (p->known[i].n == n && memcmp(p->known[i].p, list, n * sizeof(*list)) == 0) {
            out->peers = p->known[i].p;
            out->npeers = n;
            out->hash = p->known[i].hash;
            return MSP_OK;
        }
    copy = msp_arena_alloc(arena, n, sizeof(*copy));
    if (copy == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    memcpy(copy, list, n * sizeof(*copy));
    out->peers = copy;
    out->npeers = n;
    out->hash = msp_comm_hash(copy, n);
    p->known[p->next_known].p = copy;
    p->known[p->next_known].n = n;
    p->known[p->next_known].hash = out->hash;
    p->next_known = (p->next_known + 1) % MSP_COMM_KNOWN;
    return MSP_OK;
}

static msp_status
set_peers(msp_comm_call *out, msp_comm_peers *p, const int64_t *from, size_t n, msp_arena *arena, msp_error *err)
{
    int64_t *sorted = msp_alloc(n, sizeof(*sorted));
    size_t kept = 0;
    msp_status st;

    if (sorted == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    memcpy(sorted, from, n * sizeof(*from));
    qsort(sorted, n, sizeof(*sorted), by_number);
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || sorted[i] != sorted[kept - 1])
            sorted[kept++] = sorted[i];
    st = share_peers(out, p, sorted, kept, arena, err);
    msp_free(sorted);
    return st;
}

/* What the arguments say, in the order of how exact it is: a named rank, peers of point-to-point operations, a group.
 */
msp_status
msp_comm_finish(msp_comm_call *out, msp_comm_peers *p, msp_str name, int64_t rank, msp_arena *arena, msp_error *err)
{
    bool named = p->has_src || p->has_dst;
    int64_t one = p->value;
    const int64_t *from = NULL;
    size_t n = 0;

    *out = (msp_comm_call){.api = msp_comm_part(name, 2), .direction = msp_comm_part(name, 0)};
    if (named && p->in_group && p->value < (int64_t)p->ngroup)
        one = p->group[p->value];
    if (named)
        out->type = (p->has_src == (one == rank)) ? MSP_COMM_SRC : MSP_COMM_DST;
    if (named && one != rank) {
        from = &one;
        n = 1;
    } else if (p->np2p > 0) {
        out->point_to_point = true;
        from = p->p2p;
        n = p->np2p;
    } else {
        from = p->group;
        n = p->ngroup;
    }
    return n == 0 ? MSP_OK : set_peers(out, p, from, n, arena, err);
}
