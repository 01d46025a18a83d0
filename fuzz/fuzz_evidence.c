/* fuzz_evidence.c - measurements of calls: whatever the text, results belong to calls and their numbers are in range.
 */
#include <stdint.h>

#include "check.h"
#include "dump/evidence_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    msp_measurements m = {0};
    char text[256];
    msp_error err;

    if (msp_measurements_parse(&m, (const char *)data, size, &err) != MSP_OK)
        CHECK(err.message[0] != '\0');
    for (size_t i = 0; i < m.ncalls; i++) {
        const msp_measured_call *c = &m.calls[i];

        CHECK(c->first + c->count <= m.nresults);
        for (size_t k = c->first; k < c->first + c->count; k++)
            for (int s = 0; s < 2; s++)
                if (m.results[k].has[s]) {
                    CHECK(m.results[k].at.len > 0 && m.results[k].side[s].count >= 0);
                    msp_local_describe(text, sizeof(text), &m.results[k].side[s]);
                    CHECK(text[0] != '\0');
                }
    }
    msp_measurements_release(&m);
    return 0;
}
