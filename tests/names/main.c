#include "names.h"

int main(void)
{
    return names_call_all();
}
