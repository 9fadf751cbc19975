// Catch2 2.x and 3.x differ in the name of the header only, for what the tests use.
#pragma once
#if __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
#endif
