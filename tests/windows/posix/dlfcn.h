/* dlfcn.h — no library is found: OpenBLAS is looked for on Linux only. */
#pragma once
#define RTLD_NOW             0
#define RTLD_LOCAL           0
#define dlopen(name, flags)  NULL
#define dlsym(library, name) NULL
#define dlclose(library)     ((void)(library))
