/* whole_parts.h - what the files of msp_whole share: whole.c makes the rows, recipe.c says how, whole_stats.c their
 * numbers, whole_data.c reads tensors. */
#ifndef MSP_COMPARE_WHOLE_PARTS_H
#define MSP_COMPARE_WHOLE_PARTS_H

#include "compare/layout/whole.h"
#include "core/map.h"

typedef struct msp_whole_member {
    int64_t rank;
    size_t stage; /* of a pipeline */
    const char *path;
    msp_dump *dump; /* NULL for the first, whose rows and dump are the caller's */
    msp_rows own;
    const msp_rows *rows;
    msp_map names;    /* of the rows, to the first that has it */
    char *dir;        /* dump_tensor_data, which need not be there */
    msp_stack *stack; /* NULL: not asked for, or no stack.json beside its dump */
} msp_whole_member;

typedef struct msp_whole_part {
    uint32_t member;
    msp_str file; /* its data_name; empty: none */
    int64_t numel;
    const int64_t *start; /* its place in a concatenation: the first index in each dimension */
} msp_whole_part;

/* A row of several parts, or of one that another member has. */
typedef struct msp_whole_row {
    msp_layout_how how;
    double factor;   /* by which each part is multiplied */
    size_t sums;     /* concatenations of as many parts each that are added up */
    size_t first, n; /* in parts */
    const char *note;
} msp_whole_row;

struct msp_whole {
    msp_arena arena;
    const msp_layout *layout;
    int side;
    msp_whole_member *members;
    size_t nmembers;
    msp_whole_row *rows; /* msp_row.whole - 1 counts them */
    size_t nrows, cap_rows;
    msp_whole_part *parts;
    size_t nparts, cap_parts;
};

enum { MSP_RECIPE_PARTS = 1024 };

/* One cut of a tensor along an axis into as many parts; of several the later ones cut what the earlier ones made. */
typedef struct msp_cut {
    int64_t axis; /* below 0: from the end */
    size_t n;     /* 0: as many as there are parts */
} msp_cut;

/* Which members have the parts, in their order (row-major over the cuts); taken together, what to do with them. */
typedef struct msp_recipe {
    msp_layout_how how;
    double factor;
    msp_cut cuts[DTENSOR_MAX_DIM + 1]; /* of a concatenation */
    int ncuts;
    size_t sums; /* of a concatenation: one of as many that are added up, each with its share of the ranks */
    bool asked;  /* the layout or the record says so */
    const char *note;
    const int64_t *ranks; /* NULL: all members of a stage */
    size_t nranks;
    int64_t own[MSP_RECIPE_PARTS]; /* room for the ranks of a mesh */
} msp_recipe;

/*
 * How is row r of member m put together? The answer is out[0]; out[1] is room for one mesh of several. Where neither
 * layout nor record speaks of it, asked is false; where it cannot be done, note says why.
 */
void msp_recipe_find(msp_recipe *out, msp_whole *w, const msp_whole_member *m, const msp_row *r);

/* The member of a rank, and a member's row of a name. NULL: there is none. */
msp_whole_member *msp_whole_member_of(msp_whole *w, int64_t rank);
const msp_row *msp_whole_row_of(const msp_whole_member *m, msp_str name);

/* The sizes in a shape's text, "[2, 3]". False: it is none. */
bool msp_whole_shape(msp_str text, int64_t shape[MSP_MAX_NDIM], int *ndim);

/* The statistics and checksum of the whole, from its n parts' rows; shape is the whole's. False: no memory. */
bool msp_whole_statistics(msp_whole *w, msp_rows *t, msp_row *r, const msp_whole_row *how, const msp_row *const *rows,
                          const int64_t *shape, int ndim);

#endif
