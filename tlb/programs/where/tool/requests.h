/* requests.h: what the preloaded library (sites.c) tells the simulation (walks.c) through Valgrind;
 * outside of it nothing. */
#pragma once
enum request {
    NAME_RANGE = ('T' << 24) | ('W' << 16), /* site, address, bytes */
    NAME_REGION, /* site, address: the region around it, if nothing has named that */
    FREE_RANGE,  /* site of the heap that has it now, address, bytes: a block that was freed */
};
