/* Two layers of different sizes in one program. */
#include <stdio.h>

int check_small(void);
int check_large(void);

int main(void) {
    for (int n = 0; n < 2; ++n) {
        if (check_small() != 0 || check_large() != 0) return 1;
    }
    puts("both layers");
    return 0;
}
