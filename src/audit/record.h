/*
 * record.h - the pieces of a record in dump.json that the auditor reads.
 *
 * Text and arrays are kept in the rank's arena. Nothing here fails on a strange value: it is left out.
 */
#ifndef MSP_AUDIT_RECORD_H
#define MSP_AUDIT_RECORD_H

#include "audit/audit_parts.h"

/* A copy of the text; empty where there is no memory. */
msp_str msp_audit_keep(msp_audit_rank *r, msp_str s);

bool msp_audit_is_tensor(const msp_json *v);
void msp_audit_read_tensor(msp_audit_rank *r, msp_audit_tensor *t, const msp_json *v);

/* All tensors in v, which is one, or lists of them. False: no memory. */
bool msp_audit_read_tensors(msp_audit_rank *r, msp_audit_list *l, const msp_json *v);

/* A plain number, or a record of one. False, and *out as it was: it is neither. */
bool msp_audit_read_int(const msp_json *v, int64_t *out);

/* A list of numbers, or a record of one; NULL: it is none. */
int64_t *msp_audit_read_ints(msp_audit_rank *r, const msp_json *v, size_t *n);

/* Add what a tensor's record says under a name. True where it says nothing of values; false: no memory. */
bool msp_audit_add_weight(msp_audit_rank *r, msp_audit_weights *to, msp_str name, size_t at, const msp_json *v);

/* The replicated DTensors among these: see dtensor.c. */
bool msp_audit_read_dtensors(msp_audit_rank *r, msp_str name, size_t at, const msp_json *record);

/* What the auditor wants of a record becomes the rank's: communication calls, weights, gradients. False: no memory. */
bool msp_audit_read_record(msp_audit_rank *r, msp_str name, size_t at, const msp_json *record);

/* One of replicas.json. False: no memory. */
bool msp_audit_read_parameter(msp_audit_rank *r, msp_str name, size_t at, const msp_json *record);

/* The communication calls among these: see call.c. */
bool msp_audit_read_calls(msp_audit_rank *r, msp_str name, msp_str api, size_t at, const msp_json *record);

#endif
