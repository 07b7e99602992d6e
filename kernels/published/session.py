"""Published programs, many points in one process: kernels/twins/session.py."""

from kernels.twins import session

if __name__ == "__main__":
    session.serve("numpy")
