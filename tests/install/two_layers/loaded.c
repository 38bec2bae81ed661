/* Two layers of different sizes, each with its runtime in a shared object: of the two paths given, the one that stays
 * works after the other has been unloaded. */
#include <dlfcn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static int run(void* object, const char* name) {
    int (*check)(void) = NULL;
    *(void**)&check = dlsym(object, name);
    return check != NULL ? check() : -1;
}

int main(int count, char** arguments) {
    if (count != 5) return 1;
    void* stays = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    void* goes = dlopen(arguments[3], RTLD_NOW | RTLD_LOCAL);
    if (stays == NULL || goes == NULL) {
        puts(dlerror());
        return 2;
    }
    if (run(goes, arguments[4]) != 0 || run(stays, arguments[2]) != 0) return 3;
    if (dlclose(goes) != 0) return 4;
    if (run(stays, arguments[2]) != 0) return 5;

    /* What an object left to be called at a fork must have gone with it. */
    const pid_t child = fork();
    if (child == 0) _exit(run(stays, arguments[2]));
    int status = -1;
    if (waitpid(child, &status, 0) != child || status != 0) return 6;
    puts("one layer after the other");
    return 0;
}
