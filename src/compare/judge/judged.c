/* judged.c - see judged.h. */
#include "compare/judge/judged.h"

const char *
msp_verdict_text(msp_verdict v)
{
    static const char *const texts[] = {"N/A", "Yes", "No", "None", "Unmatched", "", "Warning", "Pass", "Different"};

    return texts[v];
}

bool
msp_verdict_wrong(msp_verdict v)
{
    return v == VERDICT_NO || v == VERDICT_WARNING || v == VERDICT_DIFFERENT;
}
