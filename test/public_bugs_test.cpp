// What went wrong in public compilers of tile kernels, and must not here.
