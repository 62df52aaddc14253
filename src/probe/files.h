/* Probes of what is mounted and what files tell. Each fills the row that expect_begin() named. */
#ifndef BRIG_PROBE_FILES_H
#define BRIG_PROBE_FILES_H

/* data: the data folder's path outside. */
void files_mounts(const char *data);
void files_host_paths(const char *data);
void files_host_name(const char *name);
void files_proc(void);
void files_proc_sys(void);
void files_cgroups(void);
void files_sysfs(void);
void files_devices(void);
/* A file system at path has about that size, and takes no more bytes and inodes than it has. */
void files_limit(const char *path, unsigned long mib);
/* Standard input is a socket in which a directory waits that is not the container's. */
void files_landlock(void);

#endif
