#include <stdio.h>
int
main(void)
{
    puts("msprobe");
    return 0;
}
