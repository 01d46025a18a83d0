/* interpreter.c - see interpreter.h. */
#include "interpreter.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static bool
is_program(const char *path)
{
    struct stat about;

    return stat(path, &about) == 0 && S_ISREG(about.st_mode) && access(path, X_OK) == 0;
}

static bool
find_beside(char out[MSP_INTERPRETER_PATH])
{
    static const char *const names[] = {"python3", "python"};
    ssize_t len = readlink("/proc/self/exe", out, MSP_INTERPRETER_PATH - 16);
    char *slash;

    if (len <= 0)
        return false;
    out[len] = '\0';
    slash = strrchr(out, '/');
    for (size_t i = 0; slash != NULL && i < sizeof(names) / sizeof(*names); i++) {
        strcpy(slash + 1, names[i]);
        if (is_program(out))
            return true;
    }
    return false;
}

static bool
find_on_path(char out[MSP_INTERPRETER_PATH], const char *name)
{
    const char *path = getenv("PATH");

    while (path != NULL && *path != '\0') {
        size_t len = strcspn(path, ":");
        int n = snprintf(out, MSP_INTERPRETER_PATH, "%.*s/%s", (int)len, path, name);

        if (len > 0 && n < MSP_INTERPRETER_PATH && is_program(out))
            return true;
        path += len + (path[len] == ':');
    }
    return false;
}

msp_status
msp_interpreter_find(char out[MSP_INTERPRETER_PATH], msp_error *err)
{
    const char *wanted = getenv("MSPROBE_PYTHON");

    if (wanted != NULL && *wanted != '\0') {
        bool fits = snprintf(out, MSP_INTERPRETER_PATH, "%s", wanted) < MSP_INTERPRETER_PATH;

        if (strchr(wanted, '/') == NULL ? find_on_path(out, wanted) : fits && is_program(out))
            return MSP_OK;
        return msp_error_set(err, MSP_E_NOT_FOUND, "MSPROBE_PYTHON is %s, which cannot be run", wanted);
    }
    if (find_beside(out) || find_on_path(out, "python3"))
        return MSP_OK;
    return msp_error_set(err, MSP_E_NOT_FOUND,
                         "this needs PyTorch, and no Python was found: set MSPROBE_PYTHON to the interpreter of the "
                         "environment that has torch and msprobe");
}

msp_status
msp_interpreter_run(int *code, const char **words, msp_error *err)
{
    char path[MSP_INTERPRETER_PATH];
    int status;
    pid_t pid;
    msp_status st = msp_interpreter_find(path, err);

    if (st != MSP_OK)
        return st;
    words[0] = path;
    fflush(NULL);
    pid = fork();
    if (pid < 0)
        return msp_error_set_errno(err, MSP_E_IO, errno, "cannot start %s", path);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM); /* whoever runs the command again finds nobody at work on the same files */
        execv(path, (char *const *)words);
        _exit(127);
    }
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return msp_error_set_errno(err, MSP_E_IO, errno, "cannot wait for %s", path);
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return MSP_OK;
}
