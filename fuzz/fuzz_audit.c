/*
 * fuzz_audit.c - any records of a step's ranks are matched and checked; each finding names a rank that is there or was
 * named, and says something. Nothing is read from files.
 */
#include <stdint.h>
#include <string.h>

#include "../tests/unit/audit_step.h"
#include "check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    msp_audit_result r;
    msp_error err;
    msp_status st = judge_text(&r, (const char *)data, size, &err);

    CHECK(st == MSP_OK || err.message[0] != '\0');
    if (st == MSP_OK) {
        CHECK(r.by_tensors == 0 && r.by_statistics + r.by_checksums + r.unchecked <= r.matched);
        for (size_t i = 0; i < r.nfindings; i++) {
            const msp_audit_finding *f = &r.findings[i];

            CHECK(f->what[0] != '\0' && strlen(f->call) < size && f->nstack == 0);
            CHECK(f->kind == MSP_AUDIT_RANK || f->kind == MSP_AUDIT_REPLICAS || f->record >= 0);
        }
    }
    msp_audit_result_release(&r);
    return 0;
}
