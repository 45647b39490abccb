// How the functions of this folder are declared.
#pragma once

// Not a preference: left as a call, an intrinsic would run in a function compiled without its instruction set.
#define LOCKSTEP_INLINE [[gnu::always_inline]] inline
