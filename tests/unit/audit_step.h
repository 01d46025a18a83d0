/*
 * audit_step.h - a step of a job from one text, for the auditor's tests and its fuzz target: no files.
 *
 *     {"0": {"Distributed.all_reduce.0.forward": {...}, ...}, "1": {...}}
 *
 * A record with "applied" is one of replicas.json.
 */
#ifndef MSP_AUDIT_STEP_H
#define MSP_AUDIT_STEP_H

#include <stdlib.h>
#include "audit/record.h"
#include "core/alloc.h"

enum { STEP_MAX_RANKS = 16 };

static inline int
step_by_rank(const void *a, const void *b)
{
    const msp_audit_rank *x = a, *y = b;

    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Two ranks with one number are none that a dump has. */
static inline bool
step_has_rank(const msp_audit_step *s, int64_t number)
{
    for (size_t i = 0; i < s->nranks; i++)
        if (s->ranks[i].rank == number)
            return true;
    return false;
}

/* Read and judge it. MSP_E_NOMEM, or what is wrong with the text. *out is to be released in any case. */
static inline msp_status
judge_text(msp_audit_result *out, const char *text, size_t size, msp_error *err)
{
    static const msp_dump_place place = {.path = "nowhere/step0/rank/dump.json"};
    msp_audit_rank ranks[STEP_MAX_RANKS] = {{0}};
    msp_audit_step s = {.result = out, .ranks = ranks, .threads = 1};
    msp_audit_replicas replicas = {0};
    msp_json_doc doc;
    msp_status st;

    *out = (msp_audit_result){0};
    st = msp_json_parse(&doc, text, size, err);
    if (st != MSP_OK)
        return st;
    for (size_t i = 0; i < msp_json_count(doc.root) && s.nranks < STEP_MAX_RANKS && st == MSP_OK; i++) {
        const msp_json *data = msp_json_at(doc.root, i);
        msp_str key = msp_json_key(doc.root, i);
        msp_audit_rank *r = &ranks[s.nranks];
        int64_t number = key.len > 0 ? key.p[0] - '0' : 0;

        if (msp_json_kind_of(data) != MSP_JSON_OBJECT || number < 0 || number > 9 || step_has_rank(&s, number))
            continue;
        *r = (msp_audit_rank){.rank = number, .place = &place, .records = msp_json_count(data)};
        s.nranks++;
        for (size_t k = 0; k < msp_json_count(data) && st == MSP_OK; k++) {
            r->last = msp_audit_keep(r, msp_json_key(data, k));
            bool (*read)(msp_audit_rank *, msp_str, size_t, const msp_json *) =
                msp_json_get(msp_json_at(data, k), "applied") == NULL ? msp_audit_read_record
                                                                      : msp_audit_read_parameter;

            if (!read(r, msp_json_key(data, k), k, msp_json_at(data, k)))
                st = msp_error_set(err, MSP_E_NOMEM, "out of memory");
        }
    }
    qsort(ranks, s.nranks, sizeof(*ranks), step_by_rank);
    if (st == MSP_OK)
        st = msp_audit_judge_step(&s, &replicas, err);
    for (size_t i = 0; i < STEP_MAX_RANKS; i++)
        msp_audit_rank_release(&ranks[i]);
    msp_audit_replicas_release(&replicas);
    msp_free(s.sets);
    msp_arena_release(&s.arena);
    msp_json_doc_release(&doc);
    return st;
}

#endif
