// Catch2's main. Debian 12 has version 2 (one header), Ubuntu 24.04 too; catch.hpp beside this file finds either.
#define CATCH_CONFIG_MAIN
#include "catch.hpp"
