/*
 * cross.h - MindSpore rows under the names that PyTorch gives them: -am, -cm and -lm.
 *
 * msp_cross holds the rules of a run (the yaml files are read once); msp_cross_pair applies them to one pair of dumps
 * and gives the matcher its keys. -am wins over -cm, and -cm over -lm.
 */
#ifndef MSP_COMPARE_CROSS_H
#define MSP_COMPARE_CROSS_H

#include "compare/match/match.h"
#include "text/json.h"

typedef struct msp_cross msp_cross;

/*
 * Read the rules that opt asks for; *out is NULL when it asks for none. MSP_E_NOT_FOUND, MSP_E_IO, MSP_E_FORMAT (no
 * yaml), MSP_E_INVALID (a yaml that does not say what it must; the message names the entry).
 */
MSP_CHECK msp_status msp_cross_open(msp_cross **out, const msp_compare_options *opt, msp_error *err);

/* Accepts NULL. */
void msp_cross_close(msp_cross *c);

/* Both sides of a pair; everything stays open as long as the msp_cross_pair. */
typedef struct msp_cross_sides {
    const msp_rows *npu, *bench;
    const char *npu_path, *bench_path; /* of the two dump.json: -lm reads construct.json and stack.json beside them */
    const char *mapping_path;          /* -lm writes what it found here: NPU row name: bench row name, or N/A */
} msp_cross_sides;

typedef struct msp_cross_pair msp_cross_pair;

/*
 * Work out the partners of the NPU side's calls. MSP_E_NOT_FOUND when -lm misses construct.json, MSP_E_INVALID when it
 * holds no layers (a dump of level L1).
 */
MSP_CHECK msp_status msp_cross_pair_open(msp_cross_pair **out, const msp_cross *c, const msp_cross_sides *sides,
                                         msp_error *err);

/* Accepts NULL. */
void msp_cross_pair_close(msp_cross_pair *p);

/* Set the rule's key, and what -lm leaves out of account. p must outlive the rule. */
void msp_cross_pair_rule(const msp_cross_pair *p, msp_match_rule *rule);

/* ---- parts, for the files that implement this and their tests ------------------------------------------------ */

/*
 * The PyTorch name of a MindSpore function, both without call number: "Functional.abs" gives "Torch.abs". The result
 * lies in scratch, in a table, or is stem itself.
 */
msp_str msp_cross_builtin(msp_str stem, msp_buf *scratch);

/* "Functional.abs" of "Functional.abs.0.forward"; empty when it is no function's call. */
msp_str msp_cross_stem(msp_str api);

enum { MSP_CROSS_NONE = -1 };

/*
 * Layer mapping: for each NPU call the index of the bench call, or MSP_CROSS_NONE, into partner (npu->napis entries).
 * rules is the yaml's root, or NULL.
 */
MSP_CHECK msp_status msp_cross_layers(int64_t *partner, const msp_cross_sides *sides, const msp_json *rules,
                                      msp_error *err);

#endif
