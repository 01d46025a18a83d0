/*
 * launcher.c - see launcher.h. Launchers say in the environment what they have started: Open MPI's mpirun
 * (OMPI_COMM_WORLD_*), MPICH's and Slurm's by PMI (PMI_*), Slurm's by PMIx (PMIX_RANK with SLURM_NTASKS).
 */
#include "launcher.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "msprobe/log.h"

enum { PATH_SIZE = 4096 };

typedef msp_link *open_function(msp_link *out, char *why, size_t size);

/* A number of the environment; otherwise where it is not there or no number. */
static int
number_of(const char *name, int otherwise)
{
    const char *text = getenv(name);
    char *end;
    long v = text != NULL ? strtol(text, &end, 10) : 0;

    return text == NULL || end == text || *end != '\0' || v < 0 || v > 1000000 ? otherwise : (int)v;
}

int
msp_launcher_size(void)
{
    const char *choice = getenv("MSPROBE_MPI");
    int n;

    if (choice != NULL && strcmp(choice, "0") == 0)
        return 0;
    n = number_of("OMPI_COMM_WORLD_SIZE", number_of("PMI_SIZE", 0));
    if (n == 0 && getenv("PMIX_RANK") != NULL)
        n = number_of("SLURM_STEP_NUM_TASKS", number_of("SLURM_NTASKS", 0));
    return n;
}

/* How many tasks srun has started with nothing to speak by ("--mpi=none", which many sites have as the default); 0: it
 * has not. */
static int
tasks_that_are_alone(void)
{
    const char *choice = getenv("MSPROBE_MPI");
    int n = getenv("SLURM_PROCID") == NULL ? 0 : number_of("SLURM_STEP_NUM_TASKS", 0);

    return n > 1 && msp_launcher_size() == 0 && (choice == NULL || strcmp(choice, "0") != 0) ? n : 0;
}

int
msp_launcher_rank(void)
{
    if (msp_launcher_size() == 0)
        return -1;
    return number_of("OMPI_COMM_WORLD_RANK", number_of("PMI_RANK", number_of("PMIX_RANK", -1)));
}

/* Beside the command as it is installed (bin, lib/msprobe), or as it is built. */
static void *
load_plugin(char *tried, size_t size)
{
    static const char *const places[] = {"/../lib/msprobe/msprobe_mpi.so", "/../mpi/msprobe_mpi.so"};
    char self[PATH_SIZE], path[PATH_SIZE + 64];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *slash;

    self[n > 0 ? n : 0] = '\0';
    slash = strrchr(self, '/');
    if (slash != NULL)
        *slash = '\0';
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        void *plugin;

        snprintf(path, sizeof(path), "%s%s", self, places[i]);
        if (access(path, F_OK) != 0)
            continue;
        /* global: Open MPI's own parts look for its symbols there */
        plugin = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
        if (plugin == NULL)
            snprintf(tried, size, "%.300s", dlerror());
        return plugin;
    }
    snprintf(tried, size, "it was built without MPI");
    return NULL;
}

msp_status
msp_launcher_join(msp_link *out, bool *joined, msp_error *err)
{
    int size = msp_launcher_size();
    char why[400] = "";
    open_function *open = NULL;
    void *plugin;

    *joined = false;
    if (tasks_that_are_alone() > 0 && number_of("SLURM_PROCID", 0) == 0)
        msp_log(MSP_LOG_WARNING,
                "srun started %d tasks that cannot speak to each other: each does the whole. Start them with srun "
                "--mpi=pmix (srun --mpi=list says what there is), or as one task; MSPROBE_MPI=0 takes this line away",
                tasks_that_are_alone());
    if (size <= 1)
        return MSP_OK;
    plugin = load_plugin(why, sizeof(why));
    if (plugin != NULL)
        *(void **)&open = dlsym(plugin, "msp_mpi_open");
    if (open == NULL)
        return msp_error_set(err, MSP_E_UNSUPPORTED,
                             "the launcher started %d processes, but this msprobe cannot speak MPI: %s. Install Open "
                             "MPI (libopenmpi-dev) and build again, or run without launcher (or with MSPROBE_MPI=0)",
                             size, why);
    if (open(out, why, sizeof(why)) == NULL)
        return msp_error_set(err, MSP_E_UNSUPPORTED, "the %d processes of the launcher cannot be joined: %s", size,
                             why);
    out->silence = number_of("MSPROBE_MPI_SILENCE", 0);
    *joined = true;
    if (out->version == MSP_LINK_VERSION && out->size == size)
        return MSP_OK;
    out->close(out, true, 1);
    *joined = false;
    return msp_error_set(err, MSP_E_UNSUPPORTED,
                         "the launcher started %d processes, but the MPI that msprobe was built with sees %d: use the "
                         "mpirun of that MPI",
                         size, out->size);
}
