SELECT paid FROM orders WHERE id = 'o-1'
