/* fuzz_layout.c - a layout that is read has rules that mean something, and finds one for any name in finite time. */
#include <stdint.h>

#include "compare/layout/layout.h"
#include "json_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const msp_str names[] = {{"", 0},
                                    {"Functional.linear.0.forward.output.0", 36},
                                    {"aaaaaaaaaaaaaaaaaaaaaaab", 24}};
    msp_layout l;
    msp_error err;

    if (msp_layout_parse(&l, (const char *)data, size, &err) != MSP_OK) {
        CHECK(err.message[0] != '\0');
        msp_layout_release(&l);
        return 0;
    }
    for (size_t i = 0; i < l.nrules; i++) {
        CHECK(l.rules[i].pattern.len > 0 && l.rules[i].how <= LAYOUT_SKIP && l.rules[i].axis >= -64);
        CHECK(l.rules[i].nranks == 0 || l.rules[i].ranks[0] >= 0);
    }
    for (size_t i = 0; i < l.ngroups; i++)
        CHECK(l.groups[i].n[0] > 0 && l.groups[i].n[1] > 0);
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < l.nstages[side]; i++)
            CHECK(l.stages[side][i].n > 0 && msp_layout_stage_of(&l, side, l.stages[side][i].ranks[0]) == i);
    CHECK(l.micro_batches > 0);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const msp_layout_rule *r = msp_layout_find(&l, (int)(i % 2), names[i]);

        CHECK(r == NULL || (r >= l.rules && r < l.rules + l.nrules));
    }
    msp_layout_release(&l);
    return 0;
}
