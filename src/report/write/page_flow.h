/* page_flow.h - who made what: a call whose output looks like another's input is its producer. */
#ifndef MSP_REPORT_PAGE_FLOW_H
#define MSP_REPORT_PAGE_FLOW_H

#include "core/str.h"
#include "msprobe/error.h"

typedef struct msp_page_producer {
    uint64_t key; /* 0: free */
    uint32_t call;
} msp_page_producer;

typedef struct msp_page_flow {
    msp_page_producer *producers; /* by fingerprint, the newest call that gave it */
    size_t count, cap;            /* cap is a power of two */
    msp_buf edges;                /* u32 pairs */
    uint32_t last[2];
} msp_page_flow;

/* A tensor that the call gives or takes, by its fingerprint; 0: nothing to know it by. False: out of memory. */
MSP_CHECK bool msp_page_flow_note(msp_page_flow *f, uint64_t key, uint32_t call, bool output);

void msp_page_flow_release(msp_page_flow *f);

#endif
