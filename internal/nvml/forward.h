#ifndef RAILSCOPE_NVML_FORWARD_H
#define RAILSCOPE_NVML_FORWARD_H

/* One library is open at a time, and nothing here may be called while it is opened or closed. */

/* forward_open opens the library at path; an error is a text that the caller frees. */
char *forward_open(const char *path);

/* forward_close closes it. It returns 1 if the library is still loaded afterwards, else 0. */
int forward_close(const char *path);

#endif
