#include "platform/os/hooks.h"

struct hooks hooks;
