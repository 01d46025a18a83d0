/*
 * audit_parts.h - what the files of the auditor share: a rank's communication calls, the sets of calls that belong
 * together, and findings.
 *
 * A step is held in memory at a time: of each rank its communication calls (about 300 bytes each) and a digest of each
 * weight. Tensor files are mapped while the set of calls they belong to is checked.
 */
#ifndef MSP_AUDIT_PARTS_H
#define MSP_AUDIT_PARTS_H

#include "core/arena.h"
#include "core/map.h"
#include "core/str.h"
#include "text/json.h"
#include "msprobe/audit.h"
#include "msprobe/tensor.h"

enum { MSP_AUDIT_MAX_DIM = 8, MSP_AUDIT_WHAT = 512 };
enum { MSP_AUDIT_MAX, MSP_AUDIT_MIN, MSP_AUDIT_MEAN, MSP_AUDIT_NORM, MSP_AUDIT_NSTATS };

typedef enum msp_audit_op {
    MSP_AUDIT_NONE = 0,
    MSP_AUDIT_ALL_REDUCE,
    MSP_AUDIT_REDUCE,
    MSP_AUDIT_BROADCAST,
    MSP_AUDIT_ALL_GATHER,      /* into a list */
    MSP_AUDIT_ALL_GATHER_INTO, /* into one tensor */
    MSP_AUDIT_GATHER,
    MSP_AUDIT_SCATTER,
    MSP_AUDIT_REDUCE_SCATTER, /* of a list */
    MSP_AUDIT_REDUCE_SCATTER_TENSOR,
    MSP_AUDIT_ALL_TO_ALL, /* of lists */
    MSP_AUDIT_ALL_TO_ALL_SINGLE,
    MSP_AUDIT_ALL_GATHER_LISTS, /* all_gather_coalesced: a list of lists */
    MSP_AUDIT_BARRIER,
    MSP_AUDIT_SEND,
    MSP_AUDIT_RECV
} msp_audit_op;

typedef enum msp_audit_reduce {
    MSP_REDUCE_OTHER = 0, /* one that is not checked */
    MSP_REDUCE_SUM,
    MSP_REDUCE_AVG,
    MSP_REDUCE_PRODUCT,
    MSP_REDUCE_MAX,
    MSP_REDUCE_MIN,
    MSP_REDUCE_BAND,
    MSP_REDUCE_BOR,
    MSP_REDUCE_BXOR,
    MSP_REDUCE_PREMUL_SUM
} msp_audit_reduce;

typedef struct msp_audit_tensor {
    msp_dtype dtype;
    int32_t ndim;
    int64_t shape[MSP_AUDIT_MAX_DIM];
    int64_t numel;
    bool has_stats;
    double stat[MSP_AUDIT_NSTATS];
    msp_str md5, data_name; /* empty: none */
} msp_audit_tensor;

typedef struct msp_audit_list {
    msp_audit_tensor *items;
    size_t count;
} msp_audit_list;

typedef struct msp_audit_call {
    msp_audit_op op;
    msp_audit_reduce reduce;
    double factor; /* of PREMUL_SUM */
    size_t record; /* place in dump.json */
    msp_str name;
    msp_str group;     /* its ranks and, where recorded, its name: equal text, equal group */
    msp_str signature; /* what all ranks must agree on, to be shown: "all_reduce SUM float32 [5]" */
    int64_t *ranks;    /* the group's, in its order; NULL: all */
    size_t nranks;
    int64_t order; /* place among the group's calls; -1: not recorded */
    int64_t root;  /* of broadcast and the like, peer of a message: number of the rank in the job; -1: any or none */
    int64_t tag;
    msp_audit_list in, out;          /* out is empty when the result was not recorded */
    msp_audit_list before;           /* what stood in the result's place before the call */
    int64_t *in_splits, *out_splits; /* all_to_all_single; NULL: equal parts */
    size_t nin_splits, nout_splits;
    bool coalesced;   /* recorded before it was done */
    bool is_finished; /* the call has returned, or was waited for */
    bool is_told;     /* the record says which of the group's calls this is, and coalesced is known */
} msp_audit_call;

typedef struct msp_audit_weight {
    int64_t key;       /* index of its name in the step's map */
    int64_t parameter; /* that of its parameter's name */
    int64_t said;      /* number of the group of ranks that hold it too; 0: the dump does not say */
    msp_str group;     /* id of that group, where it stands in the record */
    uint64_t digest;
    int64_t numel;
    size_t record;
    bool is_zero;                 /* nothing but zeros: equal on ranks that have nothing in common */
    bool is_constant, is_applied; /* is_applied: an optimizer's step took it */
} msp_audit_weight;

/* Weights, or gradients, in the order of the records. */
typedef struct msp_audit_weights {
    msp_audit_weight *items;
    msp_str *names; /* keys are given when all ranks are read */
    size_t n, cap, names_cap;
} msp_audit_weights;

typedef struct msp_audit_rank {
    int64_t rank;
    const msp_dump_place *place;
    msp_arena arena;
    msp_audit_call *calls;
    size_t ncalls, calls_cap;
    msp_audit_weights weights, gradients;
    msp_audit_weights held, applied; /* parameters and their gradients as the optimizer got them: replicas.json */
    int64_t *groups;                 /* of replicas, that it says it is in */
    size_t ngroups, groups_cap;
    msp_audit_weights replicated; /* DTensors, by their place and the ranks that hold them too */
    size_t records;
    msp_str last; /* name of the last record */
    bool cut, has_order;
    bool is_stuck; /* its last communication call is not finished */
    msp_str lost;  /* a tensor file that was cut short while it was read */
    msp_status status;
    msp_error err;
} msp_audit_rank;

/* Calls that belong together: one of each rank of a group, in the group's order, or a sender's and a receiver's. */
typedef struct msp_audit_set {
    msp_audit_rank **ranks; /* NULL: this rank has no dump, or did not take part */
    msp_audit_call **calls;
    size_t n;
    int64_t step;
    bool complete;
    /* what the check found */
    const msp_audit_tensor *lost; /* its file was cut short while it was read */
    const msp_audit_rank *loser;
    bool wrong, everybody; /* everybody: on all ranks, blamed is only the first */
    size_t blamed;         /* index */
    char what[MSP_AUDIT_WHAT];
    enum { MSP_BY_NOTHING = 0, MSP_BY_TENSORS, MSP_BY_STATISTICS, MSP_BY_CHECKSUMS } by;
} msp_audit_set;

typedef struct msp_audit_step {
    msp_audit_result *result;
    int64_t step;
    msp_audit_rank *ranks;
    size_t nranks;
    msp_arena arena;
    msp_audit_set *sets;
    size_t nsets, sets_cap;
    int threads;
} msp_audit_step;

/* Read calls and weights. r->rank and r->place are set; everything is released with msp_audit_rank_release(). */
MSP_CHECK msp_status msp_audit_rank_read(msp_audit_rank *r, msp_error *err);
void msp_audit_rank_release(msp_audit_rank *r);

/* Weights over the steps: which ranks are replicas, and which have parted already. Zeroed: nothing seen yet. */
typedef struct msp_audit_replicas {
    bool known, is_first; /* is_first: the step that is compared is the first one */
    int64_t *rank, *home; /* by number of the rank: the first rank that holds the same weights */
    bool *parted;
    size_t n;
    msp_map shards; /* modules that are no replicas; their names are in arena */
    msp_arena arena;
} msp_audit_replicas;

/* All that is to be said of a step whose ranks are read. The caller releases the ranks. */
MSP_CHECK msp_status msp_audit_judge_step(msp_audit_step *s, msp_audit_replicas *p, msp_error *err);

/* Match the calls of the step into sets; calls that do not meet become findings. */
MSP_CHECK msp_status msp_audit_align(msp_audit_step *s, msp_error *err);

/* The messages among them: see messages.c. */
MSP_CHECK msp_status msp_audit_align_messages(msp_audit_step *s, msp_error *err);

/* An empty set of n calls behind those of the step; the caller counts it in s->nsets when it is filled. NULL: no
 * memory. */
msp_audit_set *msp_audit_new_set(msp_audit_step *s, size_t n);

/* Is the result what the operation makes of the inputs? Fills the last fields of set. */
void msp_audit_check(msp_audit_set *set);

/* s->ranks hold weights and gradients; what parts becomes a finding. */
MSP_CHECK msp_status msp_audit_compare_replicas(msp_audit_replicas *p, msp_audit_step *s, msp_error *err);
void msp_audit_replicas_release(msp_audit_replicas *p);

/* Give each name its number, the same on all ranks. False: no memory. */
bool msp_audit_give_keys(msp_map *keys, msp_audit_weights *w);

/* DTensors that say that they are replicated and are not: see dtensor.c. */
MSP_CHECK msp_status msp_audit_compare_dtensors(msp_audit_step *s, msp_error *err);

/* Add a finding; call may be NULL. The stack is read from the rank's stack.json. */
MSP_CHECK msp_status msp_audit_add(msp_audit_step *s, msp_audit_kind kind, const msp_audit_rank *r, msp_str call,
                                   int64_t record, msp_str group, const char *what, msp_error *err);

/* Do two tensors agree in type and size and in all that is recorded of their values? */
bool msp_audit_same_summary(const msp_audit_tensor *a, const msp_audit_tensor *b);

/* The rank with this number, or NULL. */
msp_audit_rank *msp_audit_rank_of(const msp_audit_step *s, int64_t number);

/* Map the file of a tensor. MSP_E_NOT_FOUND when the record names none. */
MSP_CHECK msp_status msp_audit_open_tensor(msp_tensor *out, const msp_audit_rank *r, const msp_audit_tensor *t,
                                           msp_error *err);

/* Was the file that a tensor was opened from cut short since? */
bool msp_audit_is_cut(const msp_tensor *view, const msp_audit_rank *r, const msp_audit_tensor *t);

/* "dump_tensor_data/x.pt of rank 1 was cut short ...". Returns MSP_E_CHANGED. */
msp_status msp_audit_cut_error(const msp_audit_rank *r, msp_str file, msp_error *err);

#endif
