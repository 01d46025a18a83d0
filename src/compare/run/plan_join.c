/* plan_join.c - with a layout: the dumps of several ranks as one side of a pair. */
#include "compare/run/plan_join.h"

#include "core/alloc.h"

static bool
is_wanted(const msp_dump_place *p, int64_t rank)
{
    return p->kind == MSP_DUMP_API && p->error == NULL && (p->rank == MSP_DUMP_NO_NUMBER ? 0 : p->rank) == rank;
}

/* Every rank of the places, or those that are listed, in that order. */
msp_status
msp_plan_join(msp_dump_place **out, size_t *n, const msp_dump_place *places, size_t count, const int64_t *ranks,
              size_t nranks, const char *side, msp_error *err)
{
    size_t most = ranks != NULL ? nranks : count;

    *n = 0;
    *out = msp_alloc_zero(most, sizeof(**out));
    if (*out == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory while pairing the dumps");
    for (size_t i = 0; ranks == NULL && i < count; i++) {
        if (places[i].error != NULL)
            return msp_error_set(err, MSP_E_NOT_FOUND, "%s", places[i].error);
        if (places[i].kind == MSP_DUMP_API)
            (*out)[(*n)++] = places[i];
    }
    for (size_t i = 0; i < nranks; i++) {
        size_t k = 0;

        while (k < count && !is_wanted(&places[k], ranks[i]))
            k++;
        if (k == count)
            return msp_error_set(err, MSP_E_NOT_FOUND,
                                 "the layout's group names rank %lld, of which the %s side has no dump.json%s%s",
                                 (long long)ranks[i], side, count > 0 ? " beside " : "",
                                 count > 0 ? places[0].path : "");
        (*out)[(*n)++] = places[k];
    }
    if (*n == 0)
        return msp_error_set(err, MSP_E_NOT_FOUND, "the %s side has no dump.json to put together", side);
    return MSP_OK;
}
