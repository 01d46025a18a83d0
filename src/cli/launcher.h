/* launcher.h - was this process started by mpirun or srun together with others? */
#ifndef MSP_CLI_LAUNCHER_H
#define MSP_CLI_LAUNCHER_H

#include "msprobe/link.h"

/* How many processes the launcher says that it has started, and which this is; 0 and -1 without one. */
int msp_launcher_size(void);
int msp_launcher_rank(void);

/*
 * Join the others through the MPI part of this installation. *joined is false where there are none, or MSPROBE_MPI is
 * 0. MSP_E_UNSUPPORTED: there are others, and no way to speak to them; the message says what to do.
 */
MSP_CHECK msp_status msp_launcher_join(msp_link *out, bool *joined, msp_error *err);

#endif
