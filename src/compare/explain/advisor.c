/* advisor.c - see advisor.h. */
#include <stdint.h>

#include "compare/explain/advisor.h"
#include "core/file.h"

/* Operators whose kernels may give another result on every run. */
static bool
may_vary(msp_str name)
{
    static const char *const words[] = {"conv2d", "conv3d", "matmul", "nll_loss", "layer_norm", "lstm"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (msp_str_has(name, words[i]))
            return true;
    return false;
}

static const char *
advice_for(msp_str name, msp_advisor_pair pair, bool knows_variation)
{
    static const char *const without_row[] = {
        "No data could be judged: see Err_message in the comparison result.",
        "All data in comparison result meets the accuracy requirements.",
        "Nothing is wrong by the verdict; the manual's limits, which some rows are beyond, know nothing of rounding.",
        "Check what both runs begin with: data, weights and random state.",
    };
    bool forward = msp_str_has(name, "forward"), input = msp_str_has(name, "input");

    if (name.len == 0)
        return without_row[pair];
    if (forward && input)
        return "1. Analyze the model to view the input source.\n"
               "2. Check whether an inplace API causes the output result to overwrite the input result. That is, the "
               "fault is actually caused by a computation error.\n"
               "3. The fault may be caused by memory corruption and further analysis is required.";
    if (input)
        return "Check whether the forward computation result is affected.";
    if (knows_variation && may_vary(name))
        return "This torch api may be uncertainty in the calculation, can seed_all(mode=True) to enable deterministic "
               "computing.";
    return forward ? "This is a forward API computation error. Check the computation implementation."
                   : "This is a backward API computation error. Check the computation implementation.";
}

const char *
msp_advisor_text(msp_str name, msp_advisor_pair pair)
{
    return advice_for(name, pair, true);
}

const char *
msp_advisor_text_ptdbg(msp_str name, msp_advisor_pair pair)
{
    return advice_for(name, pair, false);
}

msp_status
msp_advisor_write(const char *path, const msp_advisor_words *words, msp_error *err)
{
    msp_str name = words->name;
    msp_buf text = {0};
    msp_status st;

    if (name.len == 0)
        msp_buf_text(&text, "Line: NA\nSuspect Nodes: NA\n");
    else
        msp_buf_printf(&text, "Line: %lld\nSuspect Nodes: %.*s\n", (long long)words->line, (int)name.len, name.p);
    msp_buf_printf(&text, "Expert Advice: %s\n", words->advice);
    if (words->verdict != NULL)
        msp_buf_printf(&text, "Verdict: %s.", words->verdict);
    for (size_t i = 0; words->verdict != NULL && words->calls != NULL && i < words->calls->count; i++)
        msp_buf_printf(&text, "%s%s", i == 0 ? " Calls that differ: " : "; ", words->calls->items[i]);
    if (words->verdict != NULL)
        msp_buf_char(&text, '\n');
    st = msp_buf_status(&text, err);
    if (st == MSP_OK)
        st = msp_file_save(path, text.p, text.len, 0640, err);
    msp_buf_release(&text);
    return st;
}
