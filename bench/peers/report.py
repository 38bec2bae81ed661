def write(*_):
    pass
